package sglang_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/sglang"
)

// TestGenerateNamesTheRank: newer versions of SGLang have another name for the field.
func TestGenerateNamesTheRank(t *testing.T) {
	var asked atomic.Pointer[map[string]any]
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"tiny","owned_by":"sglang","max_model_len":100}]}`)
	})
	mux.HandleFunc("POST /generate", func(w http.ResponseWriter, r *http.Request) {
		body := map[string]any{"header": r.Header.Get("X-Data-Parallel-Rank")}
		_ = json.NewDecoder(r.Body).Decode(&body)
		asked.Store(&body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"output_ids\":[7],\"meta_info\":{\"finish_reason\":{\"type\":\"length\",\"length\":1},\"prompt_tokens\":3,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, text := range []string{"", "0", "3"} {
		var rank beside.Rank
		if err := rank.Set(text); err != nil {
			t.Fatal(err)
		}
		e, err := sglang.New(sglang.Options{Options: beside.Options{Upstream: server.URL, MaxRunning: 2, Rank: rank}}, &beside.Config{Vocab: besidetest.Vocab})
		if err != nil {
			t.Fatal(err)
		}
		health := make(chan bool, 8)
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan struct{})
		go func() { e.Watch(ctx, func(healthy bool) { health <- healthy }); close(watched) }()
		<-health
		r := besidetest.Read(t.Context(), e, besidetest.Ask(1), nil)
		cancel()
		<-watched
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		got := *asked.Load()
		number, ranked := rank.Number()
		for _, field := range []string{"routed_dp_rank", "data_parallel_rank"} {
			if n, named := got[field].(float64); named != ranked || n != float64(number) {
				t.Errorf("for rank %q, %s is %v", text, field, got[field])
			}
		}
		if got["header"] != text {
			t.Errorf("for rank %q, the header is %q", text, got["header"])
		}
	}
}
