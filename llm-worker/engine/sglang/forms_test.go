package sglang_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/sglang"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestFormsGoToVersionsThatKnowThem: an older SGLang, or one with another grammar backend, fails on a
// structural tag in XGrammar's current format.
func TestFormsGoToVersionsThatKnowThem(t *testing.T) {
	for _, test := range []struct {
		path, version, backend string
		knows                  bool
	}{
		{"/server_info", "0.5.5", "xgrammar", true},
		{"/server_info", "0.5.10rc0", "xgrammar", true},
		{"/get_server_info", "0.6.0.dev1", "xgrammar", true},
		{"/get_server_info", "v1.0", "xgrammar", true},
		{"/get_server_info", "0.5.5", "llguidance", false},
		{"/get_server_info", "0.5.4.post3", "xgrammar", false},
		{"/get_server_info", "0.5", "xgrammar", false},
		{"/get_server_info", "", "xgrammar", false},
		{"/nowhere", "0.5.5", "xgrammar", false},
	} {
		var tag atomic.Pointer[string]
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"data":[{"id":"tiny","owned_by":"sglang","max_model_len":100}]}`)
		})
		mux.HandleFunc("GET "+test.path, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"version":%q,"grammar_backend":%q}`, test.version, test.backend)
		})
		mux.HandleFunc("POST /generate", func(w http.ResponseWriter, r *http.Request) {
			var asked struct {
				Sampling struct {
					Tag    string `json:"structural_tag"`
					Schema string `json:"json_schema"`
				} `json:"sampling_params"`
			}
			_ = json.NewDecoder(r.Body).Decode(&asked)
			guide := asked.Sampling.Tag + asked.Sampling.Schema
			tag.Store(&guide)
			w.Header().Set("Content-Type", "text/event-stream")
			token := 7
			if guide != "" {
				token = 8 // it enforces guides
			}
			fmt.Fprintf(w, "data: {\"output_ids\":[%d],\"meta_info\":{\"finish_reason\":{\"type\":\"length\",\"length\":1},\"prompt_tokens\":3,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n", token)
		})
		server := httptest.NewServer(mux)
		e, err := sglang.New(sglang.Options{Options: beside.Options{Upstream: server.URL, MaxRunning: 2}}, &beside.Config{Vocab: besidetest.Vocab})
		if err != nil {
			t.Fatal(err)
		}
		health := make(chan bool, 8)
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan struct{})
		go func() { e.Watch(ctx, func(healthy bool) { health <- healthy }); close(watched) }()
		<-health
		ask := func(form *llmv1.GuideForm) error {
			return besidetest.Read(t.Context(), e, &workerv1.TokenRequest{
				Prompt: []uint32{10}, Sampling: &llmv1.Sampling{MaxTokens: proto.Uint32(1), Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{form}}},
			}, nil).Err
		}
		if err := ask(&llmv1.GuideForm{Schema: `{"type":"null"}`}); err != nil || *tag.Load() != `{"type":"null"}` {
			t.Errorf("%+v: a schema: %v", test, err)
		}
		err = ask(&llmv1.GuideForm{Before: "<call>", Schema: `{"type":"null"}`})
		switch {
		case test.knows && (err != nil || !strings.Contains(*tag.Load(), `"value":"\u003ccall\u003e"`)):
			t.Errorf("%+v: %v, %q", test, err, *tag.Load())
		case !test.knows && (err == nil || streamerr.As(err).Param != "sampling.guide"):
			t.Errorf("%+v: a form is not refused: %v", test, err)
		}
		cancel()
		<-watched
		server.Close()
	}
}
