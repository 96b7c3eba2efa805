package openai_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

func TestEngineKeepsTheContract(t *testing.T) {
	for name, change := range map[string]func(*fake){
		"token ids": func(*fake) {},
		"text": func(f *fake) {
			f.texts, f.plain, f.owner = true, true, "somebody"
			f.answer = func(w http.ResponseWriter, r *http.Request, asked map[string]any) {
				counting(&asText{w}, r, asked)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
				f := newFake(t, counting, change)
				e := engineOn(t, f.URL)
				prompt := tinyModel(t).Tokenizer.Encode("Hello there", false)
				ask := func(limit uint32) func() *workerv1.TokenRequest {
					return func() *workerv1.TokenRequest {
						r := request(limit)
						r.Prompt = prompt
						return r
					}
				}
				return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
					Sequence: e.Generate,
					Short:    ask(5),
					Long:     ask(1000 - uint32(len(prompt))), // a second's worth; stops come in the first milliseconds
					Bad:      func() *workerv1.TokenRequest { return &workerv1.TokenRequest{} },
					Live:     func() int { return int(f.live.Load()) + int(e.Load().GetRunning()) },
				}
			})
		})
	}
}

// asText removes the token ids from a server's answer.
type asText struct{ http.ResponseWriter }

func (w *asText) Write(b []byte) (int, error) {
	_, err := w.ResponseWriter.Write(slices.Concat(b[:0:0], []byte(withoutIDs(string(b)))))
	return len(b), err
}

func (w *asText) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func TestAnswerHasTheServersTokensAndUsage(t *testing.T) {
	f := newFake(t, counting)
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := streamtrace.WithParent(stream.WithID(t.Context(), "one"), streamtrace.ParseParent(traceparent, ""))
	r := read(ctx, engineOn(t, f.URL), request(4), nil)
	if r.err != nil || !slices.Equal(r.tokens, []uint32{100, 101, 102, 103}) || r.end.GetFinish() != llmv1.Finish_FINISH_LENGTH {
		t.Fatal(r)
	}
	if r.started.GetModel() != "tiny" || r.started.GetPromptTokens() != 3 || r.started.GetStreamId() != "one" {
		t.Error(r.started)
	}
	if u := r.end.GetUsage(); u.GetPromptTokens() != 3 || u.GetCompletionTokens() != 4 || u.GetCachedTokens() != 2 || r.record.GetTokensIn() != 4 {
		t.Error(u, r.record)
	}
	if f.header.Load().Get("X-Request-Id") != "one" {
		t.Error("the server does not know the stream's id")
	}
	if got := f.header.Load().Get("traceparent"); got != traceparent {
		t.Errorf("the server was told the traceparent %q", got)
	}
}

func TestTokenThatEndsTheAnswerIsCountedAndNotSent(t *testing.T) {
	model := tinyModel(t)
	eos := int(model.EOS[0])
	for name, test := range map[string]struct {
		events   []string
		sampling *llmv1.Sampling
		want     []uint32
		count    uint32
	}{
		"end of sequence":                 {[]string{ids(100, eos), finish("stop")}, nil, []uint32{100}, 2},
		"in one event with finish_reason": {[]string{ids(100), `{"choices":[{"text":"","token_ids":[` + fmt.Sprint(eos) + `],"finish_reason":"stop"}]}`}, nil, []uint32{100}, 2},
		"which the server does not send":  {[]string{ids(100), finish("stop")}, nil, []uint32{100}, 2},
		"stop token":                      {[]string{ids(100, 200), finish("stop")}, &llmv1.Sampling{StopTokenIds: []uint32{200}}, []uint32{100}, 2},
		"followed by others":              {[]string{ids(100, 200), ids(101), finish("length")}, &llmv1.Sampling{StopTokenIds: []uint32{200}}, []uint32{100, 200, 101}, 3},
		"last, and only by chance":        {[]string{ids(100, 200), finish("length")}, &llmv1.Sampling{StopTokenIds: []uint32{200}}, []uint32{100, 200}, 2},
		"ignored":                         {[]string{ids(100, eos), ids(101), finish("length")}, &llmv1.Sampling{IgnoreEos: true}, []uint32{100, uint32(eos), 101}, 3},
		"nothing but":                     {[]string{ids(eos), finish("stop")}, nil, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
				say(w, append(test.events, "[DONE]")...)
			})
			req := &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: test.sampling}
			r := read(t.Context(), engineOn(t, f.URL), req, nil)
			if r.err != nil || !slices.Equal(r.tokens, test.want) || r.end.GetUsage().GetCompletionTokens() != test.count || r.record.GetTokensIn() != test.count {
				t.Error(r.tokens, r.end, r.err, r.record)
			}
		})
	}
}

func TestTextBecomesTokensThatDecodeToIt(t *testing.T) {
	model := tinyModel(t)
	const want = "Grüße, \U0001F680 from \\ \"Whence\"\n\tand 你好!"
	for name, parts := range map[string][]string{
		"whole":                {`"Grüße, \ud83d\ude80 from \\ \"Whence\"\n\tand 你好!"`},
		"bytes of characters":  {"\"Gr\xc3\"", "\"\xbc\xc3\"", "\"\x9fe, \xf0\x9f\"", "\"\x9a\x80 from \\\\ \\\"Whence\\\"\\n\\tand \xe4\xbd\xa0\xe5\"", "\"\xa5\xbd!\""},
		"halves of surrogates": {`"Gr\u00fc\u00dfe, \ud83d"`, `""`, `"\ude80 from \\ \"Whence\"\n"`, `"\tand 你好!"`},
		"with null and none":   {`null`, `"Grüße, 🚀"`, `""`, `" from \\ \"Whence\"\n\tand 你好!"`, `null`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
				for _, part := range parts {
					say(w, `{"choices":[{"text":`+part+`,"finish_reason":null}]}`)
				}
				say(w, finish("stop"), "[DONE]")
			}, func(f *fake) { f.texts = true })
			r := read(t.Context(), engineOn(t, f.URL), request(100), nil)
			if got := model.Tokenizer.Decode(r.tokens, true); r.err != nil || got != want {
				t.Errorf("%q, %v", got, r.err)
			}
		})
	}
}

func TestHalfACharacterAtTheEndIsNotLost(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		say(w, text("ab"), "{\"choices\":[{\"text\":\"\xe4\xbd\"}]}", finish("length"), "[DONE]")
	}, func(f *fake) { f.texts = true })
	r := read(t.Context(), engineOn(t, f.URL), request(100), nil)
	if got := tinyModel(t).Tokenizer.Decode(r.tokens, true); r.err != nil || got != "ab\uFFFD" {
		t.Errorf("%q, %v", got, r.err)
	}
}

func TestMoreStreamsThanAllowedAreRefused(t *testing.T) {
	f := newFake(t, counting)
	e := engineOn(t, f.URL, func(o *openai.Options) { o.MaxRunning = 1 })
	var second *result
	first := read(t.Context(), e, request(20), func(r *result) {
		if second == nil && len(r.tokens) > 0 {
			second = read(t.Context(), e, request(2), nil)
		}
	})
	if err := streamerr.As(second.err); err.Reason != streamerr.Overloaded || err.RetryAfter == 0 || first.err != nil {
		t.Error(second.err, first.err)
	}
	if l := e.Load(); l.GetRunning() != 0 || l.GetMaxRunning() != 1 {
		t.Error(l)
	}
}

func TestAnswersLeaveTheirConnectionsToLaterRequests(t *testing.T) {
	for name, answer := range map[string]script{
		"with [DONE]":    counting,
		"without [DONE]": events(ids(100), finish("length")),
	} {
		f := newFake(t, answer)
		e := engineOn(t, f.URL)
		polltest.Eventually(t, "two answers have had the same connection", func() bool {
			if r := read(t.Context(), e, request(2), nil); r.err != nil {
				t.Fatal(name, r.err)
			}
			return f.posted.Twice()
		})
	}
}

// gone answers with a token, or with nothing, not even headers, and waits until the client disconnects.
// asked is closed when the request has arrived.
func gone(asked chan struct{}, heard chan time.Time, first ...string) script {
	return func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		if asked != nil {
			close(asked)
		}
		if len(first) > 0 {
			say(w, first...)
		}
		<-r.Context().Done()
		heard <- time.Now()
	}
}

func TestStopClosesTheConnectionBeforeItsCauseIsYielded(t *testing.T) {
	for name, test := range map[string]struct {
		first     []string
		tls       bool
		owner     string
		confirmed bool
	}{
		"in mid-answer":     {[]string{ids(100), ids(101)}, false, "vllm", true},
		"before any header": {nil, false, "vllm", true},
		"over TLS":          {[]string{ids(100)}, true, "vllm", true},
		// Both may read the rest of a batch for a client that has left.
		"of llama.cpp": {nil, false, "llamacpp", false},
		"of Ollama":    {nil, false, "library", false},
	} {
		t.Run(name, func(t *testing.T) {
			asked, heard := make(chan struct{}), make(chan time.Time, 1)
			f := newFake(t, gone(asked, heard, test.first...), func(f *fake) { f.tls, f.owner = test.tls, test.owner })
			var pool *x509.CertPool
			if test.tls {
				pool = x509.NewCertPool()
				pool.AddCert(f.Certificate())
			}
			e := trusting(t, pool, f.URL)
			ctx, ctl := stream.WithControl(t.Context(), time.Minute)
			defer ctl.Release()
			var kept ledger.Ledger
			record := kept.Open("id", "worker", "")
			ctl.OnStop(func(cause error) { record.Stopping(streamerr.As(cause)) })
			var wg sync.WaitGroup
			wg.Go(func() {
				<-asked
				if record.Proto().GetStopConfirmed() != nil {
					t.Error("confirmed before it was stopped")
				}
				ctl.Stop(streamerr.ClientGone)
			})
			var last error
			for _, last = range e.Generate(ledger.With(ctx, record), request(100)) {
				if confirmed := record.Proto().GetStopConfirmed() != nil; last != nil && confirmed != test.confirmed {
					t.Errorf("confirmed when the cause came: %v", confirmed)
				}
			}
			wg.Wait()
			if !errors.Is(last, streamerr.ClientGone) {
				t.Error(last)
			}
			polltest.Receive(t, "the server notices", heard)
		})
	}
}

func TestStopReachesTheServerWhileTheReaderIsSlow(t *testing.T) {
	heard := make(chan time.Time, 1)
	f := newFake(t, gone(nil, heard, ids(100)))
	e := engineOn(t, f.URL)
	ctx, ctl := stream.WithControl(t.Context(), time.Minute)
	defer ctl.Release()
	r := read(ctx, e, request(100), func(r *result) {
		if len(r.tokens) == 1 { // the reader waits until the server has noticed the stop
			ctl.Stop(streamerr.SlowReader)
			polltest.Receive(t, "the server notices", heard)
		}
	})
	if !errors.Is(r.err, streamerr.SlowReader) || len(r.tokens) != 1 {
		t.Error(r)
	}
}

func TestSlowReaderSlowsTheServerDown(t *testing.T) {
	t.Parallel()
	sent := make(chan int, 1)
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
		n := 0
		event := []byte("data: " + ids(make([]int, 2000)...) + "\n\n")
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			k, err := w.Write(event)
			if n += k; err != nil || n > 1<<30 {
				sent <- n
				return
			}
		}
	})
	e := engineOn(t, f.URL)
	r := read(t.Context(), e, &workerv1.TokenRequest{Prompt: []uint32{10}}, func(r *result) {
		if len(r.tokens) == 2000 {
			if n := <-sent; n > 64<<20 {
				t.Errorf("the server could send %d bytes that nobody read", n)
			}
		}
	})
	if !errors.Is(r.err, streamerr.PeerLost) {
		t.Error(r.err)
	}
}

// BenchmarkStop measures the time from a stop until the server notices it.
func BenchmarkStop(b *testing.B) {
	heard := make(chan time.Time, 1)
	f := newFake(b, gone(nil, heard, ids(100)))
	e := engineOn(b, f.URL)
	var took []time.Duration
	for b.Loop() {
		ctx, ctl := stream.WithControl(context.Background(), time.Minute)
		var at time.Time
		read(ctx, e, request(100), func(r *result) {
			if len(r.tokens) == 1 {
				at = time.Now()
				ctl.Stop(streamerr.ClientGone)
			}
		})
		took = append(took, (<-heard).Sub(at))
		ctl.Release()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkTokens measures the cost of a token, from the server's event to the item.
func BenchmarkTokens(b *testing.B) {
	for name, event := range map[string]string{"token ids": ids(100), "text": text(" the")} {
		b.Run(name, func(b *testing.B) {
			f := newFake(b, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
				w.Header().Set("Content-Type", "text/event-stream")
				data := []byte("data: " + event + "\n\n")
				for range b.N {
					_, _ = w.Write(data)
				}
				say(w, finish("length"), "[DONE]")
			}, func(f *fake) { f.texts = name == "text" })
			e := engineOn(b, f.URL)
			b.ReportAllocs()
			b.ResetTimer()
			if r := read(b.Context(), e, &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: &llmv1.Sampling{Temperature: proto.Float32(0)}}, nil); r.err != nil || len(r.tokens) != b.N {
				b.Fatal(len(r.tokens), r.err)
			}
		})
	}
}

func TestLogprobsOfTheServerArePassedOn(t *testing.T) {
	chunk := func(id int, finish string) string {
		return fmt.Sprintf(`{"choices":[{"index":0,"text":"x","token_ids":[%d],"logprobs":{"tokens":["token_id:%d"],"token_logprobs":[-%d],"top_logprobs":[{"token_id:%d":-%d,"token_id:5":-0.5}]},"finish_reason":%s}]}`, id, id, id, id, id, finish)
	}
	told := func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		say(w, chunk(100, "null"), chunk(101, "null"), chunk(1535, `"stop"`), "[DONE]") // the last ends the answer
	}
	f := newFake(t, told)
	req := request(3)
	req.Sampling.Logprobs = new(uint32(1))
	var ids, top []uint32
	var likely []float32
	for out, err := range engineOn(t, f.URL).Generate(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		ids, likely, top = append(ids, out.GetTokens().GetIds()...), append(likely, out.GetTokens().GetLogprobs()...), append(top, out.GetTokens().GetTopIds()...)
	}
	if !slices.Equal(ids, []uint32{100, 101}) || !slices.Equal(likely, []float32{-100, -101}) || !slices.Equal(top, []uint32{5, 5}) {
		t.Error(ids, likely, top)
	}
	if asked := *f.asked.Load(); asked["logprobs"] != 1.0 || asked["return_tokens_as_token_ids"] != true {
		t.Error(asked)
	}
	silent := newFake(t, counting)
	if r := read(t.Context(), engineOn(t, silent.URL), req, nil); r.err == nil || streamerr.As(r.err).Reason != streamerr.EngineFailed {
		t.Errorf("a server that says nothing of it: %v", r.err)
	}
	other := newFake(t, told, func(f *fake) { f.owner = "sglang" })
	if r := read(t.Context(), engineOn(t, other.URL), req, nil); r.err == nil || streamerr.As(r.err).Param != "sampling.logprobs" {
		t.Errorf("a server whose logprobs have no ids: %v", r.err)
	}
}

// TestLogprobsOfThePromptComeFirst: vLLM sends those of the prompt's tokens beside the first token of the answer,
// and another Whence in chunks of their own. An answer may end with its first token.
func TestLogprobsOfThePromptComeFirst(t *testing.T) {
	const of10, of11, of12, of100 = `"token_id:10"`, `"token_id:11"`, `"token_id:12"`, `"token_id:100"`
	chunk := func(text, tokens, likely, top, rest string) string {
		return fmt.Sprintf(`{"choices":[{"index":0,"text":%q,"logprobs":{"tokens":[%s],"token_logprobs":[%s],"top_logprobs":[%s]}%s}]}`, text, tokens, likely, top, rest)
	}
	top := func(id, logprob string) string { return `{` + id + `:` + logprob + `,"token_id:5":-0.5}` }
	first, later := chunk("", of10+","+of11, "null,-11", "null,"+top(of11, "-11"), `,"finish_reason":null`), chunk("JKL", of12, "-12", top(of12, "-12"), `,"finish_reason":null`)
	for name, events := range map[string][]string{
		"vLLM": {
			chunk("x", of10+","+of11+","+of12+","+of100, "null,-11,-12,-100", "null,"+top(of11, "-11")+","+top(of12, "-12")+","+top(of100, "-100"), `,"token_ids":[100],"prompt_token_ids":[10,11,12],"finish_reason":null`),
			finish("length"),
		},
		"Whence":   {first, later, chunk("x", of100, "-100", top(of100, "-100"), `,"token_ids":[100],"finish_reason":"length"`)},
		"no token": {first, later, chunk("", `"token_id:1535"`, "-1", top(`"token_id:1535"`, "-1"), `,"token_ids":[1535],"finish_reason":"stop"`)},
		"a part":   {first, chunk("x", of100, "-100", top(of100, "-100"), `,"token_ids":[100],"finish_reason":"length"`)},
		"another":  {chunk("", of11+","+of11, "null,-11", "null,"+top(of11, "-11"), `,"finish_reason":null`)},
		"nothing":  {chunk("x", of100, "-100", top(of100, "-100"), `,"token_ids":[100],"finish_reason":"length"`)},
	} {
		f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { say(w, append(events, "[DONE]")...) })
		req := request(3)
		req.Sampling.Logprobs, req.Sampling.PromptLogprobs = new(uint32(1)), true
		var ids []uint32
		var scored []*workerv1.PromptLogprobs
		var failed error
		for out, err := range engineOn(t, f.URL).Generate(t.Context(), req) {
			failed = err
			ids = append(ids, out.GetTokens().GetIds()...)
			if out.GetPrompt() != nil {
				scored = append(scored, out.GetPrompt())
			}
		}
		if asked := *f.asked.Load(); asked["echo"] != true {
			t.Error(asked)
		}
		if name == "a part" || name == "another" || name == "nothing" {
			if streamerr.As(failed).Reason != streamerr.EngineFailed || !strings.Contains(failed.Error(), "prompt") {
				t.Errorf("%s: %v", name, failed)
			}
			continue
		}
		want := &workerv1.PromptLogprobs{Logprobs: []float32{-11, -12}, TopIds: []uint32{5, 5}, TopLogprobs: []float32{-0.5, -0.5}}
		if failed != nil || len(scored) != 1 || !proto.Equal(scored[0], want) || slices.Equal(ids, []uint32{100}) != (name != "no token") {
			t.Errorf("%s: %v %v %v", name, ids, scored, failed)
		}
	}
}

// TestAdaptersAreNamedAsEachServerTakesThem also covers servers without adapters: nothing is sent to them.
func TestAdaptersAreNamedAsEachServerTakesThem(t *testing.T) {
	for owner, want := range map[string]struct{ model, path any }{
		"vllm":     {"legal", nil},
		"sglang":   {nil, "legal"}, // nil: the name of the model
		"somebody": {"legal", nil},
		"llamacpp": {},
		"library":  {},
	} {
		t.Run(owner, func(t *testing.T) {
			f := newFake(t, counting, func(f *fake) {
				if f.owner = owner; owner != "vllm" { // which refuses what it does not list
					f.adapters.Store(&[]string{"legal"})
				}
			})
			e := engineOn(t, f.URL)
			if r := read(t.Context(), e, request(2), nil); r.err != nil {
				t.Fatal(r.err)
			}
			base := (*f.asked.Load())["model"]
			if _, there := (*f.asked.Load())["lora_path"]; there || base == "legal" {
				t.Error("a request for the model names an adapter:", *f.asked.Load())
			}
			f.asked.Store(nil)
			req := request(2)
			req.Adapter = "legal"
			r := read(t.Context(), e, req, nil)
			takes := want.model != nil || want.path != nil
			if can := e.Upstream().Capabilities.GetAdapters(); can != takes {
				t.Errorf("the worker says that it takes adapters: %t, want %t", can, takes)
			}
			if !takes {
				if e := streamerr.As(r.err); e.Reason != streamerr.Invalid || e.Param != "model" || f.asked.Load() != nil {
					t.Error(r.err)
				}
				return
			}
			if r.err != nil {
				t.Fatal(r.err)
			}
			if want.model == nil {
				want.model = base
			}
			if got := *f.asked.Load(); got["model"] != want.model || got["lora_path"] != want.path {
				t.Errorf("model %v, lora_path %v; want %v, %v", got["model"], got["lora_path"], want.model, want.path)
			}
		})
	}
}
