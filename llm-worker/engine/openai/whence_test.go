package openai_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// aWhence makes a fake another Whence, whose workers honour some fields.
func aWhence(f *fake) {
	f.owner = "someone"
	f.more = `,"context_length":512,"aliases":["small"],"sampling":["temperature","top_k","max_tokens","logprobs","guide"],"workers":{"healthy":1,"known":1}`
}

func TestAnotherWhenceGetsOnlyTheFieldsThatItReports(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		say(w, `{"choices":[{"index":0,"text":"x","logprobs":{"tokens":["token_id:100"],"token_logprobs":[-1],"top_logprobs":[{"token_id:100":-1}],"text_offset":[0]},"finish_reason":null,"token_ids":[100],"prompt_token_ids":[10]}]}`,
			finish("stop"), "[DONE]")
	}, aWhence)
	for _, name := range []string{"", "small"} {
		e := engineOn(t, f.URL, func(o *openai.Options) { o.Model = name })
		limit, can := e.Info()
		if limit != 512 || can.GetUpstream() != "whence" || can.GetAnswer() != llmv1.Form_FORM_TOKEN_IDS ||
			!slices.Equal(can.GetSampling(), []string{"temperature", "top_k", "max_tokens", "logprobs", "guide"}) || !e.Upstream().Resumes {
			t.Errorf("%d %v", limit, can)
		}
		req := &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: &llmv1.Sampling{
			MaxTokens: proto.Uint32(4), TopK: proto.Uint32(3), Logprobs: proto.Uint32(1), Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"type":"object"}`}}},
		}}
		var ids []uint32
		for out, err := range e.Generate(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, out.GetTokens().GetIds()...)
			if n := len(out.GetTokens().GetIds()); n != len(out.GetTokens().GetLogprobs()) {
				t.Errorf("%d tokens, %v", n, out.GetTokens().GetLogprobs())
			}
		}
		if !slices.Equal(ids, []uint32{100}) {
			t.Error(ids)
		}
		asked := *f.asked.Load()
		format, _ := asked["response_format"].(map[string]any)
		for field, want := range map[string]any{"model": "served", "return_token_ids": true, "skip_special_tokens": false, "return_tokens_as_token_ids": true, "top_k": 3.0} {
			if asked[field] != want {
				t.Errorf("%s is %v, not %v", field, asked[field], want)
			}
		}
		if format["type"] != "json_schema" {
			t.Error(asked)
		}
		req.Sampling = &llmv1.Sampling{MinP: proto.Float32(0.5)}
		for _, err := range e.Generate(t.Context(), req) {
			if got := streamerr.As(err); err == nil || got.Reason != streamerr.Invalid || got.Param != "sampling.min_p" {
				t.Error(err)
			}
		}
	}
}

func TestAnotherWhenceWithoutWorkersCannotBeUsed(t *testing.T) {
	f := newFake(t, counting, func(f *fake) { f.more = `,"workers":{"healthy":0,"known":1,"problem":"llm-worker/0 is down"}` })
	e := openai.New(tinyModel(t), openai.Options{Options: beside.Options{Upstream: f.URL, MaxRunning: 1}})
	if err := e.Try(t.Context()); !errors.Is(err, streamerr.Unavailable) || !strings.Contains(err.Error(), "llm-worker/0 is down") {
		t.Error(err)
	}
}

// TestFirstTrialIsReadInTheServersOwnDialect: until a server was usable once, its errors were read as
// vLLM's.
func TestFirstTrialIsReadInTheServersOwnDialect(t *testing.T) {
	for _, test := range []struct {
		owner, text string
		want        error
	}{
		{"vllm", "EngineDeadError: it ended", streamerr.PeerLost},
		{"llamacpp", "EngineDeadError: it ended", streamerr.EngineFailed},
		{"library", "EngineDeadError: it ended", streamerr.EngineFailed},
		{"library", "model runner has unexpectedly stopped", streamerr.PeerLost},
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"data":[{"id":"served","owned_by":%q}]}`, test.owner)
		})
		mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, `{"error":{"message":%q}}`, test.text)
		})
		srv := httptest.NewServer(mux)
		t.Cleanup(srv.Close)
		e := openai.New(tinyModel(t), openai.Options{Options: beside.Options{Upstream: srv.URL, MaxRunning: 1}})
		if err := e.Try(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("%s: %q is %v, not %v", test.owner, test.text, err, test.want)
		}
	}
}
