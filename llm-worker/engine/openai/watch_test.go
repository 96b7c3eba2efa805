package openai_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	asIDs  = llmv1.Form_FORM_TOKEN_IDS
	inText = llmv1.Form_FORM_TEXT
)

func TestInfoSaysWhatTheServerCanDo(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*fake)
		option  string
		prompt  llmv1.Form
		answer  llmv1.Form
		kind    string
		refuses []string // fields
	}{
		"vLLM":      {func(*fake) {}, openai.PromptAuto, asIDs, asIDs, "vllm", nil},
		"SGLang":    {func(f *fake) { f.owner = "sglang" }, openai.PromptAuto, asIDs, asIDs, "sglang", []string{"logprobs"}},
		"llama.cpp": {func(f *fake) { f.owner, f.texts = "llamacpp", true }, openai.PromptAuto, asIDs, inText, "llama.cpp", []string{"min_tokens", "stop_token_ids", "logprobs"}},
		"Ollama": {func(f *fake) { f.owner, f.texts, f.plain = "library", true, true }, openai.PromptAuto, inText, inText, "ollama",
			[]string{"top_k", "min_p", "repetition_penalty", "logit_bias", "min_tokens", "ignore_eos", "stop_token_ids", "logprobs", "guide"}},
		"somebody": {func(f *fake) { f.owner = "acme" }, openai.PromptAuto, asIDs, asIDs, "unknown",
			[]string{"top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids", "logprobs", "guide"}},
		"vLLM, whose answers are text alone": {func(f *fake) { f.texts = true }, openai.PromptAuto, asIDs, inText, "vllm", []string{"logprobs"}},
		"vLLM, in text":                      {func(*fake) {}, openai.PromptText, inText, asIDs, "vllm", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, counting, test.change)
			e := engineOn(t, f.URL, func(o *openai.Options) { o.Prompt = test.option })
			length, can := e.Info()
			if length != 1024 || can.GetPrompt() != test.prompt || can.GetAnswer() != test.answer || can.GetUpstream() != test.kind {
				t.Error(length, can)
			}
			for _, field := range sample.Fields() {
				refused := slices.Contains(test.refuses, field) || field == "prompt_logprobs" && (slices.Contains(test.refuses, "logprobs") || test.prompt == inText)
				if slices.Contains(can.GetSampling(), field) == refused {
					t.Errorf("%s is both honoured and refused, or neither", field)
				}
			}
		})
	}
}

func TestModelMayHaveANameThatIsNotListed(t *testing.T) {
	f := newFake(t, counting)
	e := engineOn(t, f.URL, func(o *openai.Options) { o.Model = "alias" })
	if _, can := e.Info(); can.GetUpstream() != "vllm" {
		t.Error(can)
	}
	if r := read(t.Context(), e, request(2), nil); r.err != nil || (*f.asked.Load())["model"] != "alias" {
		t.Error(r.err, *f.asked.Load())
	}
}

// everything returns options with every field set.
func everything() *llmv1.Sampling {
	return &llmv1.Sampling{
		Temperature: proto.Float32(0.5), TopP: proto.Float32(0.9), TopK: proto.Uint32(40), MinP: proto.Float32(0.05),
		RepetitionPenalty: proto.Float32(1.1), FrequencyPenalty: proto.Float32(0.2), PresencePenalty: proto.Float32(0.3),
		LogitBias: map[uint32]float32{7: -1.5}, Seed: proto.Uint64(1<<40 + 5), MinTokens: proto.Uint32(2), MaxTokens: proto.Uint32(9),
		IgnoreEos: true, StopTokenIds: []uint32{8}, Guide: guided(`{"type":"object"}`),
	}
}

func guided(schema string) *llmv1.Guide {
	return &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: schema}}}
}

func TestRequestsHaveTheServersFields(t *testing.T) {
	common := map[string]any{
		"model": "served", "prompt": []any{10.0, 11.0, 12.0}, "stream": true, "stream_options": map[string]any{"include_usage": true},
		"max_tokens": 9.0, "temperature": 0.5, "top_p": 0.9, "frequency_penalty": 0.2, "presence_penalty": 0.3, "seed": float64((1<<40 + 5) % (1<<31 - 1)),
	}
	all := map[string]any{
		"return_token_ids": true, "top_k": 40.0, "min_p": 0.05, "repetition_penalty": 1.1, "logit_bias": map[string]any{"7": -1.5}, "min_tokens": 2.0,
		"ignore_eos": true, "stop_token_ids": []any{8.0},
	}
	with := func(name string, value any) map[string]any {
		more := maps.Clone(all)
		more[name] = value
		return more
	}
	for owner, test := range map[string]struct {
		drop func(*llmv1.Sampling)
		want map[string]any
	}{
		"vllm": {func(*llmv1.Sampling) {}, with("response_format", map[string]any{
			"type": "json_schema", "json_schema": map[string]any{"name": "answer", "schema": map[string]any{"type": "object"}},
		})},
		"sglang": {func(*llmv1.Sampling) {}, with("json_schema", `{"type":"object"}`)},
		"llamacpp": {func(s *llmv1.Sampling) { s.MinTokens, s.StopTokenIds = proto.Uint32(0), nil },
			map[string]any{"top_k": 40.0, "min_p": 0.05, "repeat_penalty": 1.1, "repeat_last_n": float64(tinyModel(t).ContextLength), "logit_bias": map[string]any{"7": -1.5}, "ignore_eos": true,
				"json_schema": map[string]any{"type": "object"}}},
		"library": {func(s *llmv1.Sampling) {
			*s = llmv1.Sampling{Temperature: s.Temperature, TopP: s.TopP, FrequencyPenalty: s.FrequencyPenalty, PresencePenalty: s.PresencePenalty, Seed: s.Seed,
				MaxTokens: s.MaxTokens, TopK: proto.Uint32(0), MinP: proto.Float32(0), RepetitionPenalty: proto.Float32(1)} // values without an effect
		}, map[string]any{"prompt": tinyModel(t).Tokenizer.Decode([]uint32{10, 11, 12}, false)}},
	} {
		t.Run(owner, func(t *testing.T) {
			f := newFake(t, counting, func(f *fake) { f.owner = owner })
			req := request(9)
			req.Sampling = everything()
			test.drop(req.Sampling)
			if r := read(t.Context(), engineOn(t, f.URL), req, nil); r.err != nil {
				t.Fatal(r.err)
			}
			want := maps.Clone(common)
			maps.Copy(want, test.want)
			if owner == "vllm" { // which takes larger seeds
				want["seed"] = float64(1<<40 + 5)
			}
			if got := *f.asked.Load(); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

func TestFieldsThatTheServerWouldIgnoreAreRefused(t *testing.T) {
	f := newFake(t, counting, func(f *fake) { f.owner = "library" })
	e := engineOn(t, f.URL)
	for field, s := range map[string]*llmv1.Sampling{
		"top_k": {TopK: proto.Uint32(1)}, "min_p": {MinP: proto.Float32(0.1)}, "repetition_penalty": {RepetitionPenalty: proto.Float32(1.2)},
		"logit_bias": {LogitBias: map[uint32]float32{1: 1}}, "min_tokens": {MinTokens: proto.Uint32(1)}, "ignore_eos": {IgnoreEos: true},
		"stop_token_ids": {StopTokenIds: []uint32{1}}, "guide": {Guide: guided("{}")},
		"temperature": {Temperature: proto.Float32(-1)}, // which the embedded engine refuses, too
	} {
		r := read(t.Context(), e, &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: s}, nil)
		if err := streamerr.As(r.err); r.err == nil || err.Reason != streamerr.Invalid || err.Param != "sampling."+field || len(err.Path) != 0 {
			t.Errorf("%s: %v", field, r.err)
		}
	}
	if f.asked.Load() != nil {
		t.Error("the server was asked")
	}
}

func TestPromptsBeyondTheContextAreRefused(t *testing.T) {
	f := newFake(t, counting, func(f *fake) { f.limit = 100 })
	e := engineOn(t, f.URL)
	for name, prompt := range map[string][]uint32{"empty": nil, "long": make([]uint32, 100), "unknown": {1 << 20}} {
		r := read(t.Context(), e, &workerv1.TokenRequest{Prompt: prompt}, nil)
		if err := streamerr.As(r.err); r.err == nil || err.Reason != streamerr.Invalid || !strings.HasPrefix(err.Param, "prompt") {
			t.Errorf("%s: %v", name, r.err)
		}
	}
	if length, _ := e.Info(); length != 100 {
		t.Error("the server's context is shorter than the model's, and Info says", length)
	}
	if r := read(t.Context(), e, &workerv1.TokenRequest{Prompt: make([]uint32, 95)}, nil); len(r.tokens) != 5 || r.err != nil {
		t.Error(r)
	}
}

func TestHealthFollowsTheServer(t *testing.T) {
	t.Parallel()
	f := newFake(t, counting)
	e, health, log := watched(t, nil, f.URL, func(o *openai.Options) { o.Key = "sk-secret" })
	next := func(want bool) {
		t.Helper()
		if got := polltest.Receive(t, "the health changes", health); got != want {
			t.Fatal("health is", got)
		}
	}
	next(true)
	if got := f.header.Load().Get("Authorization"); got != "Bearer sk-secret" {
		t.Error(got)
	}
	addr := f.Listener.Addr().String()
	f.Close()
	next(false)
	if _, can := e.Info(); can != nil {
		t.Error(can)
	}
	// Another server replaces it.
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	other := &fake{owner: "library", texts: true, plain: true, answer: counting}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"x","owned_by":"library"}]}`)
	})
	mux.HandleFunc("POST /v1/completions", other.complete)
	other.Server = &httptest.Server{Listener: ln, Config: &http.Server{Handler: mux}}
	other.Start()
	defer other.Close()
	next(true)
	if _, can := e.Info(); can.GetUpstream() != "ollama" || can.GetPrompt() != inText {
		t.Error(can)
	}
	if strings.Contains(log.String(), "secret") {
		t.Error("the key was logged:", log)
	}
}

func TestServerThatIsTooBusyForATrialStaysHealthy(t *testing.T) {
	t.Parallel()
	f := newFake(t, thenCut(nil, ids(100)))
	e, health, _ := watched(t, nil, f.URL)
	<-health
	f.busy.Store(true)
	if r := read(t.Context(), e, request(5), nil); streamerr.As(r.err).Reason != streamerr.PeerLost {
		t.Error(r.err)
	}
	polltest.Eventually(t, "it was asked again", func() bool { return f.refused.Load() > 0 })
	f.busy.Store(false)
	polltest.Eventually(t, "it was known again", func() bool { return f.known.Load() > 1 })
	if len(health) != 0 {
		t.Error("its health has changed")
	}
}

func TestUnusableServerIsLoggedOnce(t *testing.T) {
	t.Parallel()
	models := func(body string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
	}
	const one = `{"data":[{"id":"m","owned_by":"vllm"}]}`
	templated := answering(text("a"), `{"choices":[{"finish_reason":"length"}],"usage":{"prompt_tokens":25,"completion_tokens":1}}`, "[DONE]")
	tests := map[string]struct {
		models, complete http.HandlerFunc
		says             string
	}{
		"key refused":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, nil, "--upstream-key"},
		"no models":             {models(`{"data":[]}`), nil, "--upstream-model"},
		"not JSON":              {models(`<html>`), nil, "/v1/models"},
		"loading":               {models(one), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, "503"},
		"no completions":        {models(one), func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, "404"},
		"refuses every prompt":  {models(one), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }, "400"},
		"a template of its own": {models(one), templated, "template"},
		"an Ollama with one": {models(`{"data":[{"id":"m:latest","owned_by":"library"}]}`), func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), `"prompt":"`) {
				http.Error(w, `{"error":{"message":"json: cannot unmarshal array into Go struct field CompletionRequest.prompt of type string"}}`, http.StatusBadRequest)
				return
			}
			templated(w, r)
		}, "template"},
	}
	checks := map[string]func(){} // after all have been started: they wait for seconds, together
	for name, test := range tests {
		var asked atomic.Int32
		mux := http.NewServeMux()
		mux.HandleFunc("/v1/models", func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			test.models(w, r)
		})
		if test.complete != nil {
			mux.HandleFunc("/v1/completions", test.complete)
		}
		srv := httptest.NewServer(mux)
		t.Cleanup(srv.Close)
		_, health, log := watched(t, nil, srv.URL)
		checks[name] = func() {
			polltest.Eventually(t, "it is asked again and again", func() bool { return asked.Load() >= 3 })
			if n := strings.Count(log.String(), "msg="); n != 1 || len(health) != 0 || !strings.Contains(log.String(), test.says) {
				t.Errorf("%s: %d lines, %d changes of health: %s", name, n, len(health), log)
			}
		}
	}
	for _, check := range checks {
		check()
	}
}

func answering(data ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { say(w, data...) }
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	good := openai.Options{Options: beside.Options{Upstream: "http://127.0.0.1:8000/v1/"}, Prompt: openai.PromptAuto}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for flag, change := range map[string]func(*openai.Options){
		"--upstream is":     func(o *openai.Options) { o.Upstream = "" },
		"--upstream is ":    func(o *openai.Options) { o.Upstream = "127.0.0.1:8000" },
		"--upstream must":   func(o *openai.Options) { o.Upstream = "http://user:secret@host" },
		"--upstream-prompt": func(o *openai.Options) { o.Prompt = "words" },
		"--upstream-key":    func(o *openai.Options) { o.Key = "secret\n" },
	} {
		o := good
		change(&o)
		if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), flag) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestGuideThatTheServerCannotExpressIsRefused(t *testing.T) {
	f := newFake(t, counting, func(f *fake) { f.owner = "sglang" })
	e := engineOn(t, f.URL)
	two := guided("{}")
	two.Forms = append(two.Forms, two.Forms[0])
	around := guided("{}")
	around.Forms[0].Before = "<tool_call>"
	for name, g := range map[string]*llmv1.Guide{"two forms": two, "text before": around, "no form": {}, "no schema": guided(""), "no JSON": guided("{")} {
		r := read(t.Context(), e, &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: &llmv1.Sampling{Guide: g}}, nil)
		if err := streamerr.As(r.err); r.err == nil || err.Reason != streamerr.Invalid || err.Param != "sampling.guide" {
			t.Errorf("%s: %v", name, r.err)
		}
	}
}

func TestReasoningThatMayBeLeftOutIsLeftOutOfALoneSchema(t *testing.T) {
	f := newFake(t, counting, func(f *fake) { f.owner = "sglang" })
	e := engineOn(t, f.URL)
	g := guided("{}")
	g.FreeFrom, g.FreeUntil = "<think>", "</think>"
	if r := read(t.Context(), e, &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: &llmv1.Sampling{Guide: g, MaxTokens: proto.Uint32(3)}}, nil); r.err != nil {
		t.Fatal(r.err)
	}
	if got := (*f.asked.Load())["json_schema"]; got != "{}" {
		t.Errorf("the server is asked for %v", got)
	}
}

func TestGuideWithTextBecomesAStructuralTagOfVLLM(t *testing.T) {
	f := newFake(t, counting)
	e := engineOn(t, f.URL)
	g := guided("{}")
	g.Forms[0].Before = "[CALL]"
	if r := read(t.Context(), e, &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: &llmv1.Sampling{Guide: g, MaxTokens: proto.Uint32(3)}}, nil); r.err != nil {
		t.Fatal(r.err)
	}
	want := map[string]any{"type": "structural_tag", "format": map[string]any{"type": "sequence", "elements": []any{
		map[string]any{"type": "const_string", "value": "[CALL]"}, map[string]any{"type": "json_schema", "json_schema": map[string]any{}},
	}}}
	if got := (*f.asked.Load())["response_format"]; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
