package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
)

// asTenant sends a request with an API key and an id.
func (w *whence) asTenant(t *testing.T, key, id string, a ask) *http.Response {
	t.Helper()
	resp, err := w.do(t.Context(), http.MethodPost, w.url("/v1/chat/completions"), a, "Authorization", "Bearer "+key, idName, id)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestTenantsWaitFairly: the streams of a worker with one place wait in chat-service. A tenant with
// one stream does not wait behind all streams of a greedy tenant, an urgent stream goes first, and
// a refusal has a Retry-After.
func TestTenantsWaitFairly(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(keys, []byte("keys:\n  - {key: greedy, tenant: greedy}\n  - {key: small, tenant: small}\n  - {key: urgent, tenant: greedy, tier: priority}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := run(t, separate, flags{
		all:    measured,
		api:    []string{"--keys", keys, "--headers-after", "1m"},
		chat:   []string{"--queue-streams", "8"},
		worker: []string{"--max-running", "1", "--max-queued", "8", "--pace", "100"},
	})
	if got := readAll(t, w.asTenant(t, "stranger", "stranger", greedy(short))); got.status != http.StatusUnauthorized {
		t.Errorf("a stranger gets %d: %s", got.status, got.body)
	}

	first := newLive(w.asTenant(t, "greedy", "first", greedy(long, "stream", true)))
	defer first.close()
	first.begun(t)
	var mu sync.Mutex
	var order, ids []string
	var waiting float64
	var all sync.WaitGroup
	queue := func(key, id string, a ask) {
		all.Go(func() {
			got := readAll(t, w.asTenant(t, key, id, a))
			if got.status != http.StatusOK {
				t.Errorf("%s gets %d: %s", id, got.status, got.body)
			}
			mu.Lock()
			defer mu.Unlock()
			order, ids = append(order, id), append(ids, got.header.Get(idName))
		})
		waiting++
		polltest.Eventually(t, id+" waits at "+chatService, func() bool {
			return w.scrape(t).Sum("whence_streams_queued", "hop="+chatService) == waiting
		})
	}
	for i := range 3 {
		queue("greedy", "greedy-"+strconv.Itoa(i), greedy(short))
	}
	queue("small", "small", greedy(short))
	queue("urgent", "urgent", greedy(short, "service_tier", "priority"))
	// One tenant gets at most half of the places.
	refused := readAll(t, w.asTenant(t, "greedy", "refused", greedy(short)))
	after, err := strconv.Atoi(refused.header.Get("Retry-After"))
	if refused.status != http.StatusTooManyRequests || err != nil || after < 1 || after > 60 {
		t.Errorf("a stream over the limit gets %d, Retry-After %q: %s", refused.status, refused.header.Get("Retry-After"), refused.body)
	}
	w.busy(t, 1, 0) // no stream waits at the worker
	first.close()
	all.Wait()
	if want := []string{"urgent", "small", "greedy-0", "greedy-1", "greedy-2"}; !slices.Equal(order, want) {
		t.Errorf("the streams were answered in the order %q, want %q", order, want)
	}
	w.settled(t, ids...)
	s := w.shows(t, want{"whence_streams_queued", []string{"hop=" + chatService}, 0}, want{"whence_streams_running", []string{"hop=" + chatService}, 0},
		want{"whence_requests_refused_total", []string{"hop=" + apiService, "reason=unauthenticated"}, 1})
	if n := s.Sum("whence_queue_duration_seconds_count", "hop="+chatService); n != 6 {
		t.Errorf("%v streams were admitted", n)
	}
}
