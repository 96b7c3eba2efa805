package ollama_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/llm-worker/engine/llamacpp/llamacpptest"
	"github.com/whence-dev/whence/llm-worker/engine/ollama"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A fake is an Ollama, as its docs/api.md and api/types.go have it.
type fake struct {
	*httptest.Server
	answer  func(rw http.ResponseWriter, r *http.Request) // of every request but the trial
	context int                                           // of the loaded model
	shown   string                                        // the parameters of the Modelfile
	counts  func(tokens int) int                          // of a prompt; nil for the tokens that it has
	old     bool                                          // it ignores logprobs
	full    atomic.Bool                                   // trials are refused, because the queue is full
	granted atomic.Int64                                  // trials that were answered
	refused atomic.Int64                                  // trials that were refused
	posted  besidetest.Callers

	mu    sync.Mutex // guards the following field
	asked []map[string]any
}

func (f *fake) requests() []map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]map[string]any(nil), f.asked...)
}

// say sends a line.
func say(rw http.ResponseWriter, line string) {
	rw.Header().Set("Content-Type", "application/x-ndjson")
	_, _ = fmt.Fprintln(rw, line)
	rw.(http.Flusher).Flush() //nolint:forcetypeassert // net/http's
}

// says answers with lines.
func says(lines ...string) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, _ *http.Request) {
		for _, line := range lines {
			say(rw, line)
		}
	}
}

// refuse answers as an Ollama whose queue is full.
func refuse(rw http.ResponseWriter) {
	rw.WriteHeader(http.StatusServiceUnavailable)
	_, _ = fmt.Fprint(rw, `{"error":"server busy, please try again.  maximum pending requests exceeded"}`)
}

const done = `{"response":"","done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":4}`

func newFake(t *testing.T, answer func(http.ResponseWriter, *http.Request)) *fake {
	t.Helper()
	f := &fake{answer: answer, context: 512}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/tags", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(rw, `{"models":[{"name":"other:7b","digest":"1"},{"name":"tiny:latest","digest":"2","details":{"family":"llama"}}]}`)
	})
	mux.HandleFunc("GET /api/ps", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(rw, `{"models":[{"name":"tiny:latest","digest":"2","context_length":%d}]}`, f.context)
	})
	mux.HandleFunc("POST /api/show", func(rw http.ResponseWriter, r *http.Request) {
		var asked struct{ Model string }
		if json.NewDecoder(r.Body).Decode(&asked) != nil || asked.Model != "tiny:latest" {
			http.Error(rw, `{"error":"model not found"}`, http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"parameters": f.shown, "template": "{{ .Prompt }}"})
	})
	mux.Handle("POST /api/generate", f.posted.Of(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(rw, `{"error":"no JSON"}`, http.StatusBadRequest)
			return
		}
		// Ollama's runner is llama.cpp's server, and Ollama passes its refusals on as text.
		options, _ := asked["options"].(map[string]any)
		if message := llamacpptest.Refusal(options); message != "" {
			rw.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(rw).Encode(map[string]string{"error": fmt.Sprintf(`{"error":{"code":400,"message":%q,"type":"invalid_request_error"}}`, message)})
			return
		}
		if besidetest.IsTrial(r.Header.Get("X-Request-Id")) {
			if f.full.Load() {
				refuse(rw)
				f.refused.Add(1)
				return
			}
			text, _ := asked["prompt"].(string)
			if text == beside.TrialPrompt && options["num_predict"] == 1.0 && options["temperature"] == 0.0 {
				defer f.granted.Add(1)
			}
			n := len(besidetest.Tiny().Encode(text, true))
			if f.counts != nil {
				n = f.counts(n)
			}
			answer, logprobs := "x", ""
			if asked["format"] != nil {
				answer = `\"a\"`
			}
			if asked["logprobs"] == true && !f.old {
				logprobs = `,"logprobs":[{"token":"x","logprob":-0.5,"bytes":[120],"top_logprobs":[{"token":"x","logprob":-0.5,"bytes":[120]}]}]`
			}
			say(rw, `{"response":"`+answer+`","done":false`+logprobs+`}`)
			say(rw, fmt.Sprintf(`{"response":"","done":true,"done_reason":"length","prompt_eval_count":%d,"eval_count":1}`, n))
			return
		}
		f.mu.Lock()
		f.asked = append(f.asked, asked)
		f.mu.Unlock()
		f.answer(rw, r)
	})))
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func model(t *testing.T) *lexicon.Model {
	t.Helper()
	m, err := lexicon.Load(whencetiny.FS())
	if err != nil {
		t.Fatal(err)
	}
	m.Name = whencetiny.Name
	return m
}

// watched starts an engine, and returns it and the changes of its health.
func (f *fake) watched(t *testing.T, name string) (*ollama.Engine, chan bool) {
	t.Helper()
	e := ollama.New(model(t), ollama.Options{Options: beside.Options{Upstream: f.URL, MaxRunning: 8}, Model: name})
	health := make(chan bool, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { e.Watch(ctx, func(healthy bool) { health <- healthy }) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return e, health
}

func (f *fake) start(t *testing.T) *ollama.Engine {
	t.Helper()
	e, health := f.watched(t, "tiny")
	polltest.Receive(t, "the server is healthy", health)
	return e
}

func ask(t *testing.T, text string, s *llmv1.Sampling) *workerv1.TokenRequest {
	t.Helper()
	return &workerv1.TokenRequest{Prompt: model(t).Tokenizer.Encode(text, true), Sampling: s}
}

func TestAnswerIsTheTextInTokens(t *testing.T) {
	f := newFake(t, says(`{"model":"tiny","response":"Grü","done":false}`, "", `{"response":"ße 🚀","done":false}`, done))
	e := f.start(t)
	r := besidetest.Read(t.Context(), e, ask(t, "What is Whence?", nil), nil)
	if got := model(t).Tokenizer.Decode(r.Tokens, true); r.Err != nil || got != "Grüße 🚀" || r.End.GetFinish() != llmv1.Finish_FINISH_STOP {
		t.Errorf("%q, %v, %v", got, r.End, r.Err)
	}
	if u := r.End.GetUsage(); u.GetPromptTokens() != 3 || u.GetCompletionTokens() != 4 || r.Started.GetModel() != "tiny" {
		t.Error(u, r.Started)
	}
	up := e.Upstream()
	if can := up.Capabilities; up.Context != 512 || up.Resumes || can.GetPrompt() != llmv1.Form_FORM_TEXT || can.GetAnswer() != llmv1.Form_FORM_TEXT {
		t.Error(up)
	}
}

func TestAnswersLeaveTheirConnectionsToLaterRequests(t *testing.T) {
	f := newFake(t, says(`{"response":"a","done":false}`, done))
	e := f.start(t)
	polltest.Eventually(t, "two answers have had the same connection", func() bool {
		if r := besidetest.Read(t.Context(), e, ask(t, "What is Whence?", nil), nil); r.Err != nil {
			t.Fatal(r.Err)
		}
		return f.posted.Twice()
	})
}

func TestRequestsHaveTheServersFields(t *testing.T) {
	f := newFake(t, says(done))
	e := f.start(t)
	everything := besidetest.Everything(features.Ollama.Sampling())
	everything.Guide = &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"type":"object"}`}}}
	for _, s := range []*llmv1.Sampling{everything, {MaxTokens: proto.Uint32(3)}} {
		if r := besidetest.Read(t.Context(), e, ask(t, "What is Whence?", s), nil); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	always := map[string]any{"model": "tiny:latest", "prompt": "What is Whence?", "raw": true, "stream": true, "truncate": false}
	for i, want := range []map[string]any{
		{"format": map[string]any{"type": "object"}, "options": map[string]any{
			"num_predict": 9.0, "temperature": 0.5, "top_p": 0.9, "top_k": 40.0, "min_p": 0.05, "repeat_penalty": 1.1, "repeat_last_n": 512.0,
			"frequency_penalty": 0.2, "presence_penalty": 0.3, "seed": float64((1<<40 + 5) % (1<<31 - 1)),
		}},
		{"options": map[string]any{
			"num_predict": 3.0, "temperature": 1.0, "top_p": 1.0, "top_k": 0.0, "min_p": 0.0, "repeat_penalty": 1.0,
			"frequency_penalty": 0.0, "presence_penalty": 0.0,
		}},
	} {
		for name, value := range always {
			want[name] = value
		}
		if got := f.requests()[i]; !reflect.DeepEqual(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
	for field, s := range map[string]*llmv1.Sampling{
		"min_tokens": {MinTokens: proto.Uint32(1)}, "ignore_eos": {IgnoreEos: true},
		"guide": {Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Before: "x", Schema: "{}"}}}},
	} {
		r := besidetest.Read(t.Context(), e, ask(t, "What is Whence?", s), nil)
		if err := streamerr.As(r.Err); err.Reason != streamerr.Invalid || err.Param != "sampling."+field || len(f.requests()) != 2 {
			t.Errorf("%s: %v", field, r.Err)
		}
	}
}

// TestAnswerEndsWhereAnUnknownContextEnds: Ollama would go on without the beginning of the prompt. Where the
// context is known, no answer is longer, and the request has the same form as those of other clients.
func TestAnswerEndsWhereAnUnknownContextEnds(t *testing.T) {
	f := newFake(t, says(done))
	f.context = 0
	if r := besidetest.Read(t.Context(), f.start(t), ask(t, "What is Whence?", nil), nil); r.Err != nil || f.requests()[0]["shift"] != false {
		t.Error(r.Err, f.requests())
	}
}

// TestLogprobsAreThoseOfTheirTexts: Ollama names tokens by their texts alone. It sends a character of several
// tokens with the log-probability of its last one, and parts of characters as U+FFFD.
func TestLogprobsAreThoseOfTheirTexts(t *testing.T) {
	f := newFake(t, says(
		`{"response":" 🌙","done":false,"logprobs":[{"token":" 🌙","logprob":-1.5,"bytes":[32,240,159,140,153],"top_logprobs":[{"token":"\ufffd","logprob":-1.5,"bytes":[239,191,189]},{"token":" ","logprob":-1.75,"bytes":[32]}]}]}`,
		`{"response":"a","done":false,"logprobs":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"b","logprob":-0.75,"bytes":[98]},{"token":"a","logprob":-0.5,"bytes":[97]}]}]}`,
		`{"response":"b","done":false,"logprobs":[{"token":"b","logprob":-0.25,"bytes":[98],"top_logprobs":[{"token":"b","logprob":-0.25,"bytes":[98]},{"token":"","logprob":-3,"bytes":[]}]}]}`,
		done))
	e, m := f.start(t), model(t)
	got := new(workerv1.Tokens)
	for out, err := range e.Generate(t.Context(), ask(t, "What is Whence?", &llmv1.Sampling{Logprobs: proto.Uint32(2)})) {
		if err != nil {
			t.Fatal(err)
		}
		item := out.GetTokens()
		got.Ids, got.Logprobs = append(got.Ids, item.GetIds()...), append(got.Logprobs, item.GetLogprobs()...)
		got.TopIds, got.TopLogprobs = append(got.TopIds, item.GetTopIds()...), append(got.TopLogprobs, item.GetTopLogprobs()...)
	}
	const unknown = -9999
	a, b := m.Tokenizer.Encode("a", false)[0], m.Tokenizer.Encode("b", false)[0]
	want := &workerv1.Tokens{}
	moon, _ := m.Tokenizer.NewSpeller()
	parts, err := moon.Next(" 🌙")
	if err != nil || len(parts) < 2 {
		t.Fatal("the character is one token:", parts, err)
	}
	for _, id := range parts {
		want.Ids, want.Logprobs = append(want.Ids, id), append(want.Logprobs, unknown)
		want.TopIds, want.TopLogprobs = append(want.TopIds, id, id), append(want.TopLogprobs, unknown, unknown)
	}
	want.Ids, want.Logprobs = append(want.Ids, a, b), append(want.Logprobs, -0.5, -0.25)
	want.TopIds, want.TopLogprobs = append(want.TopIds, a, b, b, b), append(want.TopLogprobs, -0.5, -0.75, -0.25, unknown)
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if asked := f.requests()[0]; asked["logprobs"] != true || asked["top_logprobs"] != 2.0 {
		t.Error(asked)
	}
}

// TestVersionWithoutLogprobsRefusesThem: it ignores the field.
func TestVersionWithoutLogprobsRefusesThem(t *testing.T) {
	f := newFake(t, says(done))
	f.old = true
	r := besidetest.Read(t.Context(), f.start(t), ask(t, "What is Whence?", &llmv1.Sampling{Logprobs: proto.Uint32(0)}), nil)
	if err := streamerr.As(r.Err); err.Reason != streamerr.Invalid || err.Param != "sampling.logprobs" || len(f.requests()) != 0 {
		t.Error(r.Err)
	}
}

func TestEveryMisdeedHasItsEnding(t *testing.T) {
	const one = `{"response":"a","done":false}`
	refused := func(status int, why string) func(http.ResponseWriter, *http.Request) {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(status)
			_, _ = fmt.Fprintf(rw, `{"error":%q}`, why)
		}
	}
	status := func(status int) func(http.ResponseWriter, *http.Request) { return refused(status, "because") }
	codes := map[string]string{"prompt too long": streamerr.CodeContextLength, "model removed": streamerr.CodeModelNotFound}
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		reason streamerr.Reason
		says   string
	}{
		"closes at once":          {says(""), streamerr.PeerLost, "without an ending"},
		"closes in mid-answer":    {says(one), streamerr.PeerLost, "without an ending"},
		"closes in mid-line":      {func(rw http.ResponseWriter, _ *http.Request) { say(rw, one); _, _ = fmt.Fprint(rw, `{"response":"b"`) }, streamerr.PeerLost, "without an ending"},
		"breaks the connection":   {func(rw http.ResponseWriter, _ *http.Request) { say(rw, one); panic(http.ErrAbortHandler) }, streamerr.PeerLost, "broke the connection"},
		"error in the stream":     {says(one, `{"error":"unexpected EOF"}`), streamerr.EngineFailed, "EOF"},
		"its runner is killed":    {says(one, `{"error":"an error was encountered while running the model: unexpected EOF"}`), streamerr.PeerLost, "running the model"},
		"its runner dies":         {says(one, `{"error":"model runner has unexpectedly stopped, check ollama server logs for details"}`), streamerr.PeerLost, "runner"},
		"unloads the model":       {says(one, `{"response":"","done":true,"done_reason":"unload"}`), streamerr.EngineFailed, "unload"},
		"no JSON":                 {says(one, "hello"), streamerr.EngineFailed, "an invalid answer"},
		"JSON about another kind": {says(one, `{"hello":"world"}`), streamerr.EngineFailed, "no response"},
		"a line without an end":   {says(`{"response":"` + strings.Repeat("x", 2<<20) + `"}`), streamerr.EngineFailed, "more than"},
		"no stream":               {func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(rw, `{"error":"odd"}`) }, streamerr.EngineFailed, "odd"},
		"status 400":              {status(400), streamerr.Invalid, "because"},
		"status 404":              {status(404), streamerr.NotFound, "because"},
		"prompt too long":         {refused(400, "the input length exceeds the context length"), streamerr.Invalid, "context length"},
		"model removed":           {refused(404, "model 'tiny:latest' not found"), streamerr.NotFound, "not found"},
		"status 429":              {status(429), streamerr.Overloaded, "because"},
		"status 500":              {status(500), streamerr.EngineFailed, "because"},
		"full queue":              {func(rw http.ResponseWriter, _ *http.Request) { refuse(rw) }, streamerr.Overloaded, "pending requests"},
		"status 503":              {status(503), streamerr.Unavailable, "because"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, test.answer)
			r := besidetest.Read(t.Context(), f.start(t), ask(t, "What is Whence?", nil), nil)
			if err := streamerr.As(r.Err); r.Err == nil || err.Reason != test.reason || err.Path.String() != "engine" || err.Code != codes[name] || !strings.Contains(err.Message, test.says) {
				t.Errorf("got %v, want %s with %q", r.Err, test.reason, test.says)
			}
		})
	}
}

// TestStopStringsOfTheModelfileAreLogged: Ollama applies them unless a request names its own, so no
// request does.
func TestStopStringsOfTheModelfileAreLogged(t *testing.T) {
	f := newFake(t, says(`{"response":"a","done":false}`, done))
	f.shown = "num_ctx                        4096\nstop                           \"<|im_end|>\"\nstop                           \"\\nUser:\"\nstop x\n"
	var log strings.Builder
	e := ollama.New(model(t), ollama.Options{Options: beside.Options{Upstream: f.URL, MaxRunning: 8, Log: slog.New(slog.NewTextHandler(&log, nil))}, Model: "tiny"})
	ctx, cancel := context.WithCancel(t.Context())
	healthy := make(chan bool, 100)
	var wg sync.WaitGroup
	wg.Go(func() { e.Watch(ctx, func(well bool) { healthy <- well }) })
	<-healthy
	if r := besidetest.Read(t.Context(), e, ask(t, "What is Whence?", nil), nil); r.Err != nil || r.End.GetFinish() != llmv1.Finish_FINISH_STOP {
		t.Error(r.End, r.Err)
	}
	cancel()
	wg.Wait()
	if logged := log.String(); strings.Count(logged, "Modelfile") != 1 || !strings.Contains(logged, `stop="[<|im_end|> \nUser:]"`) {
		t.Error(logged)
	}
	if options, ok := f.requests()[0]["options"].(map[string]any); !ok || options["stop"] != nil {
		t.Error("the request replaces the Modelfile's stop strings:", f.requests())
	}
}

func TestStopClosesTheConnection(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	f := newFake(t, func(rw http.ResponseWriter, r *http.Request) {
		say(rw, `{"response":"a ","done":false}`)
		<-r.Context().Done()
		close(gone)
	})
	ctx, ctl := stream.WithControl(t.Context(), time.Minute)
	defer ctl.Release()
	r := besidetest.Read(ctx, f.start(t), ask(t, "What is Whence?", nil), func(r *besidetest.Result) {
		if len(r.Tokens) > 0 {
			go ctl.Stop(streamerr.ClientGone)
		}
	})
	if !errors.Is(r.Err, streamerr.ClientGone) || r.Record.GetStopConfirmed() != nil { // Ollama does not tell
		t.Error(r.Err, r.Record)
	}
	polltest.Receive(t, "the server notices", gone)
}

func TestServerThatCannotBeUsedIsNotHealthy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		model  string
		counts func(int) int
		says   string
	}{
		"no such model":     {"big", nil, "no model"},
		"a template":        {"tiny", func(n int) int { return n + 8 }, "another tokenizer"},
		"another tokenizer": {"tiny", func(n int) int { return n * 2 / 3 }, `runs "tiny:latest", and the model files of the worker (--model whence-tiny) have other tokens: "`},
		"a larger one":      {"tiny", func(n int) int { return n + n/3 }, "and the server counts"},
	} {
		f := newFake(t, says(done))
		f.counts = test.counts
		e, health := f.watched(t, test.model)
		polltest.Eventually(t, name, func() bool { return strings.Contains(e.Problem(), test.says) })
		if r := besidetest.Read(t.Context(), e, ask(t, "What is Whence?", nil), nil); len(health) > 0 || !errors.Is(r.Err, streamerr.Unavailable) {
			t.Errorf("%s: %v", name, r.Err)
		}
	}
}

// TestServerInDoubtIsTriedUntilItHasRoom: a full queue says nothing against the server, and nothing for it.
// TestServerThatCountsALittleOtherwiseIsUsed: llama.cpp splits some texts otherwise than the tokenizers of
// Hugging Face, into the same vocabulary.
func TestServerThatCountsALittleOtherwiseIsUsed(t *testing.T) {
	t.Parallel()
	f := newFake(t, says(done))
	f.counts = func(n int) int { return n - n/20 }
	e := f.start(t)
	if notes := e.Upstream().Notes; len(notes) != 1 || !strings.Contains(notes[0], "counts tokens otherwise") {
		t.Errorf("the operator reads %q", notes)
	}
}

func TestServerInDoubtIsTriedUntilItHasRoom(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	e, health := f.watched(t, "tiny")
	polltest.Eventually(t, "the server is healthy", func() bool { return len(health) == 1 })
	f.full.Store(true)
	if r := besidetest.Read(t.Context(), e, ask(t, "What is Whence?", nil), nil); r.Err == nil {
		t.Fatal("a broken connection is not an error")
	}
	polltest.Eventually(t, "the server in doubt is tried", func() bool { return f.refused.Load() > 0 })
	f.full.Store(false)
	polltest.Eventually(t, "the server that was too busy is tried again", func() bool { return f.granted.Load() == 2 })
	if len(health) != 1 || e.Upstream() == nil {
		t.Error("a full queue made the server unhealthy:", e.Problem())
	}
}
