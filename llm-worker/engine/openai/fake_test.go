package openai_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/llamacpp/llamacpptest"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/pkg/ledger"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A script answers POST /v1/completions. asked is its body.
type script func(w http.ResponseWriter, r *http.Request, asked map[string]any)

// A fake is an upstream that answers requests for one token, which engines send as trials, with one token, and
// all other requests with its script.
type fake struct {
	*httptest.Server
	owner  string // of its model
	limit  int    // max_model_len, if any
	info   string // /get_server_info of an SGLang; "" for none
	texts  bool   // it answers with text, without ids
	plain  bool   // it takes prompts only as text
	strict string // a field that it refuses; "" for none
	tls    bool
	embed  http.HandlerFunc // nil for a server without embeddings
	more   string           // further members of its model
	// tokenize is POST /tokenize; nil for a server without it.
	tokenize http.HandlerFunc
	extra    int  // tokens that it counts, and has, too many in prompts of text
	silent   bool // it answers only with streams
	// unknown are the fields that it refuses in trials, and void says that it ignores guides, as a vLLM with
	// a reasoning parser does.
	unknown []string
	void    bool
	tagless bool         // it refuses structural tags
	looks   atomic.Int32 // at the list of its models
	busy    atomic.Bool  // too busy for requests for one token

	adapters       atomic.Pointer[[]string] // in the list of models
	refused, known atomic.Int32             // of those
	answer         script
	live           atomic.Int32
	asked          atomic.Pointer[map[string]any] // last, of those for the script
	body           atomic.Pointer[[]byte]         // likewise
	header         atomic.Pointer[http.Header]    // last
	path           atomic.Value                   // last, of those for the script
	posted         besidetest.Callers
}

// newFake starts an upstream like vLLM, which change may modify.
func newFake(t testing.TB, answer script, change ...func(*fake)) *fake {
	t.Helper()
	f := &fake{owner: "vllm", answer: answer, tokenize: besidetest.Tokenize}
	for _, c := range change {
		c(f)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		f.looks.Add(1)
		extra := ""
		if f.limit > 0 {
			extra = fmt.Sprintf(`,"max_model_len":%d`, f.limit)
		}
		fmt.Fprintf(w, `{"object":"list","data":[{"id":"served","object":"model","owned_by":%q%s%s}`, f.owner, extra, f.more)
		if adapters := f.adapters.Load(); adapters != nil {
			for _, name := range *adapters {
				fmt.Fprintf(w, `,{"id":%q,"object":"model","owned_by":%q,"parent":"served"}`, name, f.owner)
			}
		}
		fmt.Fprint(w, `]}`)
	})
	if f.info != "" {
		mux.HandleFunc("GET /get_server_info", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, f.info) })
	}
	if f.tokenize != nil {
		mux.HandleFunc("POST /tokenize", f.tokenize)
	}
	mux.HandleFunc("POST /v1/completions", f.complete)
	mux.HandleFunc("POST /v1/chat/completions", f.complete)
	if f.embed != nil {
		mux.HandleFunc("POST /v1/embeddings", f.embed)
	}
	f.Server = httptest.NewUnstartedServer(f.posted.Of(mux))
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	if f.tls {
		f.StartTLS()
	} else {
		f.Start()
	}
	t.Cleanup(f.Close)
	return f
}

func (f *fake) complete(w http.ResponseWriter, r *http.Request) {
	f.live.Add(1)
	defer f.live.Add(-1)
	f.header.Store(&r.Header)
	asked := map[string]any{}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &asked)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, isText := asked["prompt"].(string); f.plain && !isText {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"cannot unmarshal array into prompt of type string","type":"invalid_request_error"}}`)
		return
	}
	if _, has := asked[f.strict]; has {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":{"message":"Unknown parameter: %s","type":"invalid_request_error"}}`, f.strict)
		return
	}
	if message := llamacpptest.Refusal(asked); f.owner == "llamacpp" && message != "" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":{"code":400,"message":%q,"type":"invalid_request_error"}}`, message)
		return
	}
	if asked["max_tokens"] == 1.0 && asked["stream"] == false && asked["kv_transfer_params"] == nil && !f.silent {
		f.count(w, asked)
		return
	}
	if besidetest.IsTrial(r.Header.Get("X-Request-Id")) {
		if f.busy.Load() {
			f.refused.Add(1)
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		f.try(w, asked)
		return
	}
	f.asked.Store(&asked)
	f.path.Store(r.URL.Path)
	f.body.Store(&body)
	f.answer(w, r, asked)
}

// try answers the request of a trial: with one token, or with the text that its guide allows.
func (f *fake) try(w http.ResponseWriter, asked map[string]any) {
	for _, field := range f.unknown {
		if asked[field] != nil {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":"%s is not supported","type":"BadRequestError","code":400}}`, field)
			return
		}
	}
	if tag := fmt.Sprint(asked["response_format"]); f.tagless && strings.Contains(tag, "structural_tag") {
		say(w, `{"error":{"message":"unknown type structural_tag","type":"BadRequestError","code":400}}`, "[DONE]")
		return
	}
	if asked["max_tokens"] == 1.0 && asked["temperature"] == 0.0 {
		f.known.Add(1) // a plain one
	}
	besidetest.Complete(w, asked, !f.texts && asked["return_token_ids"] == true, f.void)
}

// count answers a request that is not streamed with the ids of the prompt, if it asks for them, and their
// number.
func (f *fake) count(w http.ResponseWriter, asked map[string]any) {
	text, _ := asked["prompt"].(string)
	prompt := append(besidetest.Tiny().Encode(text, true), make([]uint32, f.extra)...)
	choice := map[string]any{"index": 0, "text": "x", "finish_reason": "length"}
	if asked["return_token_ids"] == true && !f.texts {
		choice["prompt_token_ids"] = prompt
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{choice}, "usage": map[string]any{"prompt_tokens": len(prompt), "completion_tokens": 1}})
}

// say sends events.
func say(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, data := range events {
		fmt.Fprintf(w, "data: %s\n\n", data)
	}
	w.(http.Flusher).Flush()
}

func ids(ids ...int) string {
	b, _ := json.Marshal(ids)
	return fmt.Sprintf(`{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"x","token_ids":%s,"finish_reason":null}],"usage":null}`, b)
}

func text(s string) string {
	b, _ := json.Marshal(s)
	return fmt.Sprintf(`{"choices":[{"index":0,"text":%s,"finish_reason":null}]}`, b)
}

func finish(reason string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"text":"","finish_reason":%q}]}`, reason)
}

// counting answers with as many tokens as requested: 100, 101 and so on, one per millisecond.
func counting(w http.ResponseWriter, r *http.Request, asked map[string]any) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	n := int(asked["max_tokens"].(float64))
	for i := range n {
		say(w, ids(100+i%1000))
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
	say(w, finish("length"), fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":2}}}`, n), "[DONE]")
}

func tinyModel(t testing.TB) *lexicon.Model {
	t.Helper()
	m, err := lexicon.Load(whencetiny.FS())
	if err != nil {
		t.Fatal(err)
	}
	m.Name = whencetiny.Name
	return m
}

// engineOn starts an engine on an upstream, and returns when the engine has found the upstream healthy.
func engineOn(t testing.TB, url string, change ...func(*openai.Options)) *openai.Engine {
	t.Helper()
	return trusting(t, nil, url, change...)
}

// engineOf is engineOn for a given model.
func engineOf(t testing.TB, model *lexicon.Model, url string) *openai.Engine {
	t.Helper()
	e, health, _ := watchedModel(t, model, nil, url)
	polltest.Receive(t, "the upstream is found healthy", health)
	return e
}

// trusting is engineOn for an upstream with a certificate from pool.
func trusting(t testing.TB, pool *x509.CertPool, url string, change ...func(*openai.Options)) *openai.Engine {
	t.Helper()
	e, health, _ := watched(t, pool, url, change...)
	polltest.Receive(t, "the upstream is found healthy", health)
	return e
}

// watched starts an engine, and returns the changes of its health, and its log.
func watched(t testing.TB, trusted *x509.CertPool, url string, change ...func(*openai.Options)) (*openai.Engine, chan bool, *logtest.Log) {
	t.Helper()
	return watchedModel(t, tinyModel(t), trusted, url, change...)
}

func watchedModel(t testing.TB, model *lexicon.Model, trusted *x509.CertPool, url string, change ...func(*openai.Options)) (*openai.Engine, chan bool, *logtest.Log) {
	t.Helper()
	lines := new(logtest.Log)
	opts := openai.Options{
		Options: beside.Options{Upstream: url, Name: "tiny", MaxRunning: 32, ProbeInterval: 20 * time.Millisecond, Log: slog.New(slog.NewTextHandler(lines, nil))}, Prompt: openai.PromptAuto,
	}
	for _, c := range change {
		c(&opts)
	}
	if err := opts.Validate(); err != nil {
		t.Fatal(err)
	}
	e := openai.New(model, opts)
	if trusted != nil {
		openai.Trust(e, trusted)
	}
	health := make(chan bool, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { e.Watch(ctx, func(healthy bool) { health <- healthy }) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return e, health, lines
}

func request(limit uint32) *workerv1.TokenRequest {
	return &workerv1.TokenRequest{Prompt: []uint32{10, 11, 12}, Sampling: &llmv1.Sampling{MaxTokens: proto.Uint32(limit)}}
}

// A result is the outcome of a stream.
type result struct {
	started *llmv1.Started
	tokens  []uint32
	written []*workerv1.Written // of a worker that is text only
	end     *llmv1.End
	err     error
	record  *streamv1.Record
}

// read ranges over a stream to its end; each is called after each item.
func read(ctx context.Context, e *openai.Engine, req *workerv1.TokenRequest, each func(r *result)) *result {
	var kept ledger.Ledger
	record := kept.Open("id", "worker", "")
	r := new(result)
	for out, err := range e.Generate(ledger.With(ctx, record), req) {
		if err != nil {
			r.err = err
			break
		}
		if s := out.GetStarted(); s != nil {
			r.started = s
		}
		r.tokens = append(r.tokens, out.GetTokens().GetIds()...)
		if w := out.GetTokens().GetWritten(); w != nil {
			r.written = append(r.written, w)
		}
		r.end = out.GetEnd()
		if each != nil {
			each(r)
		}
	}
	r.record = record.Proto()
	return r
}

// withoutIDs removes token_ids from an event.
func withoutIDs(event string) string {
	before, after, ok := strings.Cut(event, `"token_ids":[`)
	if !ok {
		return event
	}
	_, after, _ = strings.Cut(after, "],")
	return before + after
}
