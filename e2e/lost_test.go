package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestLostProcessIsNamedAndComesBack(t *testing.T) {
	t.Parallel()
	for _, v := range victims[len(victims)-2:] { // a client notices the loss of the edge itself
		t.Run(v.service, func(t *testing.T) {
			t.Parallel()
			w := run(t, separate, flags{worker: []string{"--pace", "40"}})
			running := w.open(t, greedy(long)).begun(t)
			w.processes[v.service].kill(t)
			e := running.failed(t)
			if e.reason() != "peer_lost" || !slices.Equal(e.Path, v.path) {
				t.Errorf("the client reads reason %q, path %v, message %q; want peer_lost, %v", e.reason(), e.Path, e.Message, v.path)
			}
			if got := w.ended(t, "api-service", running.id); got.Reason != "peer_lost" || got.Path != strings.Join(v.path, " > ") {
				t.Errorf("api-service logged reason %s, path %q", got.Reason, got.Path)
			}
			eventually(t, "/readyz says that no request can be answered", func() bool { return w.readiness() == http.StatusServiceUnavailable })
			status, code := http.StatusServiceUnavailable, "unavailable" // chat-service knows that there is no worker
			if v.service == chatService {
				status, code = http.StatusBadGateway, "peer_lost"
				w.idle(t) // the worker must notice the loss, too
				if got := w.ended(t, "llm-worker/0", running.id); got.Reason != "peer_lost" || got.Path != "chat-service > llm-worker/0" {
					t.Errorf("the worker logged reason %s, path %q", got.Reason, got.Path)
				}
			}
			for _, stream := range []bool{false, true} {
				r := w.post(t, greedy(short, "stream", stream))
				if e := r.completion(t).Error; r.status != status || e.reason() != code {
					t.Errorf("without %s: status %d: %s", v.service, r.status, r.body)
				}
			}
			w.restart(t, v.service)
			w.ready(t)
			w.works(t)
			w.open(t, greedy("What is 2 + 3?")).completed(t)
		})
	}
}
