package llamacpp_test

import (
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
	"github.com/whence-dev/whence/llm-worker/engine/llamacpp"
	"github.com/whence-dev/whence/llm-worker/engine/llamacpp/llamacpptest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func model(t testing.TB) *lexicon.Model {
	t.Helper()
	m, err := lexicon.Load(whencetiny.FS())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func subject(t testing.TB) *besidetest.Subject {
	t.Helper()
	m := *model(t)
	m.ContextLength, m.VocabSize, m.EOS = besidetest.Context, besidetest.Vocab, []uint32{besidetest.EOS}
	return &besidetest.Subject{Dialect: llamacpptest.Dialect(), New: func(o beside.Options) (besidetest.Engine, error) {
		o.Upstream = "http://" + o.Upstream
		return llamacpp.New(&m, llamacpp.Options{Options: o}), nil
	}}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	besidetest.Run(t, *subject(t))
}

func TestRequestsHaveTheServersFields(t *testing.T) {
	e, server := subject(t).Start(t, besidetest.Count)
	everything := besidetest.Everything(features.LlamaCPP.Sampling())
	everything.Guide = &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"type":"null"}`}}}
	always := map[string]any{"return_tokens": true, "timings_per_token": true, "cache_prompt": true}
	for name, test := range map[string]struct {
		asked *llmv1.Sampling
		want  map[string]any
	}{
		"everything": {everything, map[string]any{
			"temperature": 0.5, "top_p": 0.9, "top_k": 40.0, "min_p": 0.05, "repeat_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.3,
			"repeat_last_n": float64(besidetest.Context), "logit_bias": []any{[]any{7.0, -1.5}}, "seed": float64((1<<40 + 5) % (1<<31 - 1)), "max_tokens": uint64(9), "ignore_eos": true,
			"grammar": "root ::= \"null\"\n",
		}},
		"a schema that only the server takes": {&llmv1.Sampling{MaxTokens: proto.Uint32(3), Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"contains":{"type":"null"}}`}}}}, map[string]any{
			"temperature": 1.0, "top_p": 1.0, "top_k": 0.0, "min_p": 0.0, "repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "max_tokens": uint64(3),
			"json_schema": map[string]any{"contains": map[string]any{"type": "null"}},
		}},
		"a guide with text around its schema": {&llmv1.Sampling{MaxTokens: proto.Uint32(3), Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"type":"null"}`, After: "."}}}}, map[string]any{
			"temperature": 1.0, "top_p": 1.0, "top_k": 0.0, "min_p": 0.0, "repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "max_tokens": uint64(3),
			"grammar": "root ::= r0\nr0 ::= \"null\" \".\"\n",
		}},
		// Unset fields are sent with our defaults: the server has others.
		"nothing": {&llmv1.Sampling{MaxTokens: proto.Uint32(3)}, map[string]any{
			"temperature": 1.0, "top_p": 1.0, "top_k": 0.0, "min_p": 0.0, "repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "max_tokens": uint64(3),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(server.Asked())
			if r := besidetest.Read(t.Context(), e, &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: test.asked}, nil); r.Err != nil {
				t.Fatal(r.Err)
			}
			for field, value := range always {
				test.want[field] = value
			}
			got := maps.Clone(server.Asked()[before].Sampling) // the server still reads it
			if _, seeded := got["seed"].(float64); !seeded {
				t.Error("the request has no seed, by which its slot is known")
			}
			if test.asked.Seed == nil {
				delete(got, "seed") // a random one
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
		})
	}
}

// TestPenaltiesCountTheWholeContext: without a window, the server counts the last 64 tokens, and versions
// differ in how they write the whole text.
func TestPenaltiesCountTheWholeContext(t *testing.T) {
	e, server := subject(t).Start(t, besidetest.Count)
	for name, test := range map[string]struct {
		asked  *llmv1.Sampling
		window any
	}{
		"repetition": {&llmv1.Sampling{RepetitionPenalty: proto.Float32(1.1)}, float64(besidetest.Context)},
		"frequency":  {&llmv1.Sampling{FrequencyPenalty: proto.Float32(-0.5)}, float64(besidetest.Context)},
		"presence":   {&llmv1.Sampling{PresencePenalty: proto.Float32(0.5)}, float64(besidetest.Context)},
		"without effect": {&llmv1.Sampling{
			RepetitionPenalty: proto.Float32(1), FrequencyPenalty: proto.Float32(0), PresencePenalty: proto.Float32(0),
		}, nil},
		"none": {nil, nil},
	} {
		before := len(server.Asked())
		if test.asked != nil {
			test.asked.MaxTokens = proto.Uint32(2)
		} else {
			test.asked = &llmv1.Sampling{MaxTokens: proto.Uint32(2)}
		}
		if r := besidetest.Read(t.Context(), e, &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: test.asked}, nil); r.Err != nil {
			t.Fatalf("%s: %v", name, r.Err)
		}
		if got := server.Asked()[before].Sampling["repeat_last_n"]; got != test.window {
			t.Errorf("%s: the window is %v, want %v", name, got, test.window)
		}
	}
}

// TestSlotsOfTheServerAreThePlacesOfTheWorker: the server runs no more requests at a time, and queues the rest.
func TestSlotsOfTheServerAreThePlacesOfTheWorker(t *testing.T) {
	e, _ := subject(t).Start(t, besidetest.Count)
	if load := e.Load(); load.GetMaxRunning() != 4 || load.GetMaxQueued() != 28 { // of the fake's slots, and of 32 streams
		t.Error(load)
	}
	results := make(chan error, 10)
	for range cap(results) {
		go func() { results <- besidetest.Read(t.Context(), e, besidetest.Ask(3), nil).Err }()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error("a stream that can wait at the server is refused:", err)
		}
	}
}

// TestServerThatRefusesOurRequestsIsNotHealthy: a server that answers /props and refuses a field of
// every request must not get streams.
func TestServerThatRefusesOurRequestsIsNotHealthy(t *testing.T) {
	const refusal = `{"error":{"code":400,"message":"Field 'repeat_last_n': the server is of another time","type":"invalid_request_error"}}`
	dialect := llamacpptest.Dialect()
	serve := dialect.HTTP
	var refuses atomic.Bool
	refuses.Store(true)
	dialect.HTTP = func(s *besidetest.Server) http.Handler {
		working := serve(s)
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/completion" && refuses.Load() {
				rw.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(rw, refusal)
				return
			}
			working.ServeHTTP(rw, r)
		})
	}
	s := subject(t)
	s.Dialect = dialect
	server := besidetest.Start(t, s.Dialect, besidetest.Count, "")
	e, health := s.Watched(t, server.Addr)
	problem := func() string { return e.(*llamacpp.Engine).Problem() } //nolint:forcetypeassert // subject's
	polltest.Eventually(t, "the problem is the server's reason", func() bool { return strings.Contains(problem(), "the server is of another time") })
	if len(health) != 0 || e.Upstream() != nil {
		t.Error("a server that refuses every request is healthy")
	}
	refuses.Store(false)
	if !<-health || problem() != "" {
		t.Error(problem())
	}
}

// withheld plays an answer as the server does: it sends no event for a token that ends within a
// character, and the text of the character with the token that ends it.
func withheld(m *lexicon.Model, ids []uint32) besidetest.Script {
	return func(a *besidetest.Answer) error {
		text := ""
		for i, id := range ids {
			piece, _ := m.Tokenizer.Spells(id)
			if text += piece; strings.ToValidUTF8(text, "") != text {
				continue
			}
			a.Send(llamacpptest.Event(map[string]any{"content": text, "tokens": []uint32{id}, "tokens_predicted": i + 1, "tokens_evaluated": 3, "stop": false,
				"completion_probabilities": []any{map[string]any{"id": id, "logprob": -0.5, "top_logprobs": []any{map[string]any{"id": 5, "logprob": -1.5}, map[string]any{"id": id, "logprob": -0.5}}}}}))
			text = ""
		}
		a.Send(llamacpptest.Event(map[string]any{"content": "", "tokens": []uint32{}, "tokens_predicted": len(ids), "tokens_evaluated": 3, "stop": true, "stop_type": "limit"}))
		return nil
	}
}

func TestTokensThatTheServerDoesNotSendAreFound(t *testing.T) {
	m := model(t)
	for _, text := range []string{"plain", "Send 🚀🌙 emojis", "你好, こんにちは。", "🚀"} {
		ids := m.Tokenizer.Encode(text, false)
		e, _ := subject(t).Start(t, withheld(m, ids))
		r := besidetest.Read(t.Context(), e, besidetest.Ask(uint32(len(ids))), nil)
		if r.Err != nil || !slices.Equal(r.Tokens, ids) || int(r.End.GetUsage().GetCompletionTokens()) != len(ids) {
			t.Errorf("%q: got %v, want %v; %v, %v", text, r.Tokens, ids, r.End, r.Err)
		}
	}
	// The limit may come within a character.
	ids := m.Tokenizer.Encode("🚀", false)
	e, _ := subject(t).Start(t, withheld(m, ids[:1]))
	if r := besidetest.Read(t.Context(), e, besidetest.Ask(1), nil); r.Err != nil || len(r.Tokens) != 0 || r.End.GetTokens() != 1 || r.End.GetFinish() != llmv1.Finish_FINISH_LENGTH {
		t.Error(r.Tokens, r.End, r.Err)
	}
}

// TestLogprobsOfTokensThatTheServerDoesNotSend: nobody can tell how likely these tokens were. The others
// keep their log-probabilities.
func TestLogprobsOfTokensThatTheServerDoesNotSend(t *testing.T) {
	m := model(t)
	ids := m.Tokenizer.Encode("a 🚀🌙 b", false)
	for _, top := range []uint32{0, 2} {
		want := new(workerv1.Tokens)
		text, lost := "", 0
		for _, id := range ids {
			piece, _ := m.Tokenizer.Spells(id)
			text += piece
			one := []float32{-9999, -9999, -9999}
			others := []uint32{id, id}
			if strings.ToValidUTF8(text, "") == text {
				text, one, others = "", []float32{-0.5, -0.5, -1.5}, []uint32{id, 5}
			} else {
				lost++
			}
			want.Ids, want.Logprobs = append(want.Ids, id), append(want.Logprobs, one[0])
			want.TopIds, want.TopLogprobs = append(want.TopIds, others[:top]...), append(want.TopLogprobs, one[1:1+top]...)
		}
		if lost == 0 {
			t.Fatal("no token ends within a character")
		}
		e, _ := subject(t).Start(t, withheld(m, ids))
		req := besidetest.Ask(uint32(len(ids)))
		req.Sampling.Logprobs = &top
		got := new(workerv1.Tokens)
		for out, err := range e.Generate(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
			item := out.GetTokens()
			got.Ids, got.Logprobs = append(got.Ids, item.GetIds()...), append(got.Logprobs, item.GetLogprobs()...)
			got.TopIds, got.TopLogprobs = append(got.TopIds, item.GetTopIds()...), append(got.TopLogprobs, item.GetTopLogprobs()...)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%d top tokens: got %v, want %v", top, got, want)
		}
	}
}

// event sends an event after one token.
func event(data string) besidetest.Script {
	return func(a *besidetest.Answer) error {
		a.Count(1)
		a.Send(besidetest.Message("data: " + data + "\n\n"))
		return nil
	}
}

func refuses(code codes.Code) besidetest.Script {
	return func(*besidetest.Answer) error { return status.Error(code, "because") }
}

func TestEveryMisdeedHasItsEnding(t *testing.T) {
	finish := func(how string) besidetest.Script {
		return func(a *besidetest.Answer) error { a.Count(1); a.Complete(how); return nil }
	}
	subject(t).Misdeeds(t, map[string]besidetest.Misdeed{
		"closes at once":               {Script: func(a *besidetest.Answer) error { a.Send(besidetest.Message(": ping\n\n")); return nil }, Reason: streamerr.PeerLost, Says: "without an ending"},
		"closes in mid-answer":         {Script: func(a *besidetest.Answer) error { a.Count(1); return nil }, Reason: streamerr.PeerLost, Tokens: 1, Says: "without an ending"},
		"breaks the connection":        {Script: func(a *besidetest.Answer) error { a.Count(1); a.Server.CutOnceRead(); return nil }, Reason: streamerr.PeerLost, Tokens: 1, Says: "broke the connection"},
		"breaks it before it answers":  {Script: func(a *besidetest.Answer) error { a.Server.Cut(); return nil }, Reason: streamerr.Unavailable, Says: "broke the connection before it answered"},
		"[DONE] without an ending":     {Script: event("[DONE]"), Reason: streamerr.PeerLost, Tokens: 1, Says: "last event"},
		"stops without saying why":     {Script: finish("none"), Reason: streamerr.EngineFailed, Tokens: 1, Says: `"none"`},
		"stops at a word":              {Script: finish("word"), Reason: streamerr.EngineFailed, Tokens: 1, Says: `"word"`},
		"no JSON":                      {Script: event("hello"), Reason: streamerr.EngineFailed, Tokens: 1, Says: "an invalid answer"},
		"tokens that are not counted":  {Script: event(`{"content":"a","tokens":[5]}`), Reason: streamerr.EngineFailed, Tokens: 1, Says: "count"},
		"fewer tokens than before":     {Script: event(`{"content":"a","tokens":[5],"tokens_predicted":1}`), Reason: streamerr.EngineFailed, Tokens: 1, Says: "had come before"},
		"text without ids":             {Script: event(`{"content":"a","tokens":[],"tokens_predicted":2}`), Reason: streamerr.EngineFailed, Tokens: 1, Says: "too old"},
		"a token that nothing spells":  {Script: event(`{"content":"\u0001\u0002\u0003","tokens":[5],"tokens_predicted":9}`), Reason: streamerr.EngineFailed, Tokens: 1, Says: "run this model"},
		"a token that the model lacks": {Script: event(`{"content":"","tokens":[99999],"tokens_predicted":2}`), Reason: streamerr.EngineFailed, Tokens: 1, Says: "vocabulary"},
		"error in the stream":          {Script: event(`{"error":{"code":500,"message":"KV cache is full","type":"server_error"}}`), Reason: streamerr.EngineFailed, Tokens: 1, Says: "KV cache is full"},
		"error of the request":         {Script: event(`{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}`), Reason: streamerr.Invalid, Tokens: 1, Says: "too long"},
		"error while it is loading":    {Script: event(`{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`), Reason: streamerr.Unavailable, Tokens: 1, Says: "Loading"},
		"never ends":                   {Script: func(a *besidetest.Answer) error { a.Count(1 << 20); return nil }, Reason: streamerr.EngineFailed, Tokens: 50, Says: "more tokens than the 50"},
		"status 400":                   {Script: refuses(codes.InvalidArgument), Reason: streamerr.Invalid, Says: "because"},
		"status 404":                   {Script: refuses(codes.NotFound), Reason: streamerr.NotFound, Says: "because"},
		"status 429":                   {Script: refuses(codes.ResourceExhausted), Reason: streamerr.Overloaded, Says: "because"},
		"status 500":                   {Script: refuses(codes.Internal), Reason: streamerr.EngineFailed, Says: "because"},
		"status 401":                   {Script: refuses(codes.Unauthenticated), Reason: streamerr.EngineFailed, Says: "--upstream-key"},
	})
}

// TestServerOfAnotherModelIsRefused: the server has other tokens than the worker's files, or too few.
func TestServerOfAnotherModelIsRefused(t *testing.T) {
	t.Parallel()
	files, err := lexicon.Load(besidetest.OtherModel(t))
	if err != nil {
		t.Fatal(err)
	}
	files.Name = "other"
	own := model(t)
	for name, test := range map[string]struct {
		files *lexicon.Model
		vocab int
		says  string
	}{
		"other tokens":   {files, besidetest.Vocab, "at the server, from token "},
		"too few tokens": {own, 1535, "the files have 1536, and the server's vocabulary 1535"},
	} {
		server := besidetest.Start(t, llamacpptest.Dialect(), besidetest.Count, "")
		server.Vocab.Store(int32(test.vocab))
		s := besidetest.Subject{New: func(o beside.Options) (besidetest.Engine, error) {
			o.Upstream = "http://" + o.Upstream
			return llamacpp.New(test.files, llamacpp.Options{Options: o}), nil
		}}
		e, health := s.Watched(t, server.Addr)
		polltest.Eventually(t, name, func() bool { return strings.Contains(e.(*llamacpp.Engine).Problem(), test.says) })
		if len(health) > 0 {
			t.Errorf("%s: the server is healthy", name)
		}
	}
}
