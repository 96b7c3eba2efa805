package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/whencetiny"
)

// TestEveryHopReportsTheProblemOfAnEngine checks that every hop reports why no worker is healthy,
// with the message of the hop that knows the cause.
func TestEveryHopReportsTheProblemOfAnEngine(t *testing.T) {
	t.Parallel()
	var refusing atomic.Int32 // a status; 0 while the server is healthy
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { // needs no key, as in llama.cpp
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":"vllm"}]}`, whencetiny.Name)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, _ *http.Request) {
		if status := refusing.Load(); status != 0 {
			w.WriteHeader(int(status))
			fmt.Fprint(w, `{"error":{"message":"the key sk-secret is not known"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, "x", "length")
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w := run(t, separate, flags{worker: append(onServer("openai", server.URL), "--upstream-key", "sk-secret")})
	w.answer(t, greedy(short, "max_tokens", 1))

	refusing.Store(http.StatusUnauthorized)
	w.post(t, greedy(short, "max_tokens", 1)) // the refusal makes the worker run a trial
	const says = "the server that generates answered with status 401: it refuses the worker's key"
	problem := fmt.Sprintf("no healthy worker for %q: llm-worker/0: %s", model, says)
	polltest.Eventually(t, "/readyz says why", func() bool {
		r := w.get(t, "/readyz")
		return r.status == http.StatusServiceUnavailable && strings.Contains(string(r.body), problem)
	})
	r := w.post(t, greedy(short))
	if e := r.completion(t).Error; r.status != http.StatusServiceUnavailable || e.reason() != "unavailable" || !strings.Contains(e.Message, problem) {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	if all := w.workersNow(t); len(all) != 1 || all[0].State != "down" || !strings.Contains(all[0].Message, says) {
		t.Errorf("%+v", all)
	}
	var models struct {
		Data []struct{ Workers struct{ Problem string } }
	}
	if err := json.Unmarshal(w.get(t, "/v1/models").body, &models); err != nil || len(models.Data) != 1 || !strings.Contains(models.Data[0].Workers.Problem, says) {
		t.Error(models, err)
	}
	for service, message := range map[string]string{llmWorker: "upstream is not healthy", chatService: "worker is not healthy", apiService: "a chat-service cannot be used"} {
		p := w.processes[service]
		line := p.await(t, p.Log, "why it is not ready", func(line string) bool { // before the first trial is over, it says another reason
			return strings.Contains(line, message) && strings.Contains(line, says)
		})
		if strings.Contains(line, "sk-secret") {
			t.Errorf("%s logs %s", service, line)
		}
	}
	if strings.Contains(string(r.body), "127.0.0.1") {
		t.Errorf("clients see addresses: %s", r.body)
	}
}

// TestEveryHopNamesAnUnreachableWorker dials an address without a listener.
func TestEveryHopNamesAnUnreachableWorker(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{})
	w.processes[llmWorker].kill(t)
	const says = "it cannot be reached: connection refused"
	polltest.Eventually(t, "/readyz says why", func() bool {
		r := w.get(t, "/readyz")
		return r.status == http.StatusServiceUnavailable && strings.Contains(string(r.body), "llm-worker/0: "+says)
	})
	if r := w.post(t, greedy(short)); !strings.Contains(string(r.body), says) || strings.Contains(string(r.body), w.worker) {
		t.Errorf("status %d: %s", r.status, r.body)
	}
}
