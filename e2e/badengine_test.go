package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/whence-dev/whence/internal/whencetiny"
)

// badEngine starts a server that looks like vLLM. misbehave answers every request except the
// worker's trial.
func badEngine(t *testing.T, misbehave http.HandlerFunc) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	stuck := new(atomic.Bool)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		if stuck.Load() {
			<-r.Context().Done()
			return
		}
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":"vllm"}]}`, whencetiny.Name)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get(idName), "trial-") {
			misbehave(w, r.WithContext(context.WithValue(r.Context(), stuckKey{}, stuck)))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, "x", "length")
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// event writes one token, as vLLM does.
func event(w http.ResponseWriter, text, finish string) {
	reason := "null"
	if finish != "" {
		reason = fmt.Sprintf("%q", finish)
	}
	fmt.Fprintf(w, `data: {"choices":[{"index":0,"text":%q,"token_ids":[%d],"finish_reason":%s}]}`+"\n\n", text, 'a', reason)
	w.(http.Flusher).Flush()
}

// breaksOff sends some tokens, then the bytes in then, and ends the response.
func breaksOff(then string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 5 {
			event(w, "a", "")
		}
		fmt.Fprint(w, then)
	}
}

// breaksOffOnce ends the response after some tokens, and continues the answer when it is asked for the
// rest.
func breaksOffOnce(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.MaxTokens == movedTokens {
		breaksOff("")(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for range asked.MaxTokens - 1 {
		event(w, "a", "")
	}
	event(w, "a", "length")
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// isSilent accepts a request and sends nothing until its caller leaves.
func isSilent(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// stuckKey is the context key of a bad engine's *atomic.Bool, which is true once the engine answers
// no more requests.
type stuckKey struct{}

// hangs accepts a request, sends nothing, and makes the engine answer no further request.
func hangs(w http.ResponseWriter, r *http.Request) {
	r.Context().Value(stuckKey{}).(*atomic.Bool).Store(true)
	isSilent(w, r)
}

// answers refuses with a status.
func answers(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":"no, says the engine","code":%d}}`, status)
	}
}
