package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// The variants of providers.
const (
	resumable = "resumable" // takes and returns token ids, like vLLM
	plain     = "plain"     // takes and returns text only
)

// referenceText is the answer of every provider unless its scenario disturbs it.
const referenceText = "Whoever closes a tab stops a stream, and whoever stops a stream frees a slot. So the story goes on, and on, until it ends."

// A provider is an OpenAI-compatible server behind one worker. The scenario determines the faults:
// a request's temperature identifies its play.
type provider struct {
	*httptest.Server
	variant string
	name    string
	tok     *tokenizer.Tokenizer
	answer  []uint32 // referenceText
	pieces  []string // referenceText
	plays   *plays
}

// A play is one run of a scenario in one variant and mode. Its first provider gets the
// first call.
type play struct {
	mu    sync.Mutex // guards the following fields
	first *provider
	calls [2]int // of the first provider and of the other provider

	faults func(c *providerCall) // handles a provider's call
}

// plays are the live plays, by the number in the temperature of their requests.
type plays struct {
	mu   sync.Mutex
	byID map[int]*play
	next int
}

// temperatureUnit distinguishes plays: its multiples are exact in a float32.
const temperatureUnit = 1.0 / 1024

// add begins a play and returns the temperature of its requests.
func (p *plays) add(faults func(*providerCall)) (*play, float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID == nil {
		p.byID = map[int]*play{}
	}
	p.next = p.next%1024 + 1
	one := &play{faults: faults}
	p.byID[p.next] = one
	return one, float64(p.next) * temperatureUnit
}

func (p *plays) find(temperature float64) *play {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byID[int(math.Round(temperature/temperatureUnit))]
}

// asked counts a call. It reports whether p is the play's first provider, and returns the number of
// its earlier calls.
func (y *play) asked(p *provider) (first bool, before int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.first == nil {
		y.first = p
	}
	at := 1
	if first = y.first == p; first {
		at = 0
	}
	y.calls[at]++
	return first, y.calls[at] - 1
}

func (y *play) count() [2]int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.calls
}

// A completionBody is the part of a request's body that providers read.
type completionBody struct {
	Prompt      json.RawMessage
	MaxTokens   int `json:"max_tokens"`
	Temperature float64
	Guide       json.RawMessage `json:"response_format"`
}

// guided returns the only answer that the guide of a worker's trial allows, or "" without such a guide.
func (b *completionBody) guided() string {
	switch guide := strings.ReplaceAll(string(b.Guide), `\`, ""); {
	case !strings.Contains(guide, `["a"]`):
		return ""
	case strings.Contains(guide, `"b"`): // the text before the schema
		return `b"a"`
	default:
		return `"a"`
	}
}

// tinyTokenizer returns the tokenizer of the embedded model.
func tinyTokenizer(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	file, err := whencetiny.FS().Open("tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func newProvider(t *testing.T, variant, name string, all *plays) *provider {
	t.Helper()
	tok := tinyTokenizer(t)
	p := &provider{variant: variant, name: name, tok: tok, answer: tok.Encode(referenceText, false), pieces: strings.SplitAfter(referenceText, " "), plays: all}
	p.Server = completionServer(t, variant, p.complete)
	return p
}

// completionServer starts a server with one model.
func completionServer(t *testing.T, variant string, complete http.HandlerFunc) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	owner := ""
	if variant == resumable {
		owner = "vllm"
	}
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":%q}]}`, whencetiny.Name, owner)
	})
	mux.HandleFunc("POST /v1/completions", complete)
	mux.HandleFunc("POST /v1/chat/completions", complete) // only conversations with images
	s := httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (p *provider) complete(w http.ResponseWriter, r *http.Request) {
	var asked completionBody
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c := &providerCall{ResponseWriter: w, request: r, provider: p, skip: -1}
	var ids []uint32
	var text string
	switch {
	case p.variant == resumable:
		if json.Unmarshal(asked.Prompt, &ids) != nil {
			c.refuse(http.StatusBadRequest, "prompt must be token ids", "", "")
			return
		}
	case json.Unmarshal(asked.Prompt, &text) != nil:
		c.refuse(http.StatusBadRequest, "prompt must be a string", "", "")
		return
	}
	if asked.MaxTokens == 1 { // the worker's trial request
		c.limit, c.skip = 1, 0
		c.say()
		return
	}
	c.skip = p.answered(ids)
	y := p.plays.find(asked.Temperature)
	if y == nil {
		c.refuse(http.StatusBadRequest, "no scenario has this temperature", "", "")
		return
	}
	c.first, c.before = y.asked(p)
	y.faults(c)
}

// answered returns the number of tokens at the end of a prompt that begin the answer.
func (p *provider) answered(prompt []uint32) int {
	for n := min(len(prompt), len(p.answer)); n > 0; n-- {
		if slices.Equal(prompt[len(prompt)-n:], p.answer[:n]) {
			return n
		}
	}
	return 0
}

// A providerCall is one request to a provider.
type providerCall struct {
	http.ResponseWriter
	request  *http.Request
	provider *provider
	first    bool // the call is to the play's first provider
	before   int  // earlier calls of the play to this provider
	skip     int  // tokens of the answer that are a part of the prompt
	limit    int  // maximum number of tokens to send; 0 means all
	said     int
}

// refuse answers with a status and an error object. An empty retryAfter sends no header.
func (c *providerCall) refuse(status int, message, code, retryAfter string) {
	c.Header().Set("Content-Type", "application/json")
	if retryAfter != "" {
		c.Header().Set("Retry-After", retryAfter)
	}
	c.WriteHeader(status)
	fmt.Fprintf(c, `{"error":{"message":%q,"type":"provider_error","code":%q}}`, message, code)
}

// head sends the head of a stream.
func (c *providerCall) head() {
	c.Header().Set("Content-Type", "text/event-stream")
	c.flush()
}

func (c *providerCall) flush() { c.ResponseWriter.(http.Flusher).Flush() }

// event sends the data of one event.
func (c *providerCall) event(data string) {
	fmt.Fprintf(c, "data: %s\n\n", data)
	c.flush()
}

// tokens sends the next n tokens of the answer, or words from a text provider; all remaining ones
// if n is 0.
func (c *providerCall) tokens(n int) {
	c.head()
	p := c.provider
	for at := c.skip + c.said; n == 0 || c.said < n; at++ {
		if p.variant == plain {
			if at >= len(p.pieces) {
				return
			}
			c.event(fmt.Sprintf(`{"choices":[{"index":0,"text":%q,"finish_reason":null}]}`, p.pieces[at]))
		} else {
			if at >= len(p.answer) {
				return
			}
			c.event(fmt.Sprintf(`{"choices":[{"index":0,"text":"","token_ids":[%d],"finish_reason":null}]}`, p.answer[at]))
		}
		c.said++
	}
}

// finish reports why the answer has ended, and its usage, including the token that ended it, as
// vLLM counts.
func (c *providerCall) finish(reason string) {
	c.event(fmt.Sprintf(`{"choices":[{"index":0,"text":"","finish_reason":%q}]}`, reason))
	n := c.said
	if reason == "stop" {
		n++
	}
	if c.provider.variant == resumable { // many text providers count with another tokenizer, or not at all
		c.event(fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":%d}}`, n))
	}
}

func (c *providerCall) done() { c.event("[DONE]") }

// say sends a whole answer.
func (c *providerCall) say() {
	c.tokens(c.limit)
	if c.limit > 0 {
		c.finish("length")
	} else {
		c.finish("stop")
	}
	c.done()
}

// hang sends nothing more until the caller has gone.
func (c *providerCall) hang() { <-c.request.Context().Done() }

// cut breaks the connection in mid-response.
func (c *providerCall) cut() { panic(http.ErrAbortHandler) }

// reset resets the connection before the response.
func (c *providerCall) reset() {
	conn, _, err := c.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		err = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
	}
	if err != nil {
		panic(err)
	}
}
