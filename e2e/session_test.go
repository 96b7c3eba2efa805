package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	streamstory "github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/polltest"
)

// TestSessionStaysOnItsWorker runs several conversations over HTTP whose prompts all begin
// differently: only the name of the session determines the worker.
func TestSessionStaysOnItsWorker(t *testing.T) {
	t.Parallel()
	w := runFleet(t, 3, flags{worker: []string{"--engine", "sim", "--sim-speed", "100"}, chat: []string{"--policy", "session"}})
	// on returns the worker that answered a request, once its place is free again: a worker with
	// more than its share is skipped.
	on := func(a ask, id string) (worker string, told streamstory.Story) {
		t.Helper()
		resp, err := w.send(t, a, id)
		if err != nil {
			t.Fatal(err)
		}
		if r := readAll(t, resp); r.status != http.StatusOK {
			t.Fatalf("status %d: %s", r.status, r.body)
		}
		polltest.Eventually(t, "that all hops have ended "+id, func() bool {
			told = w.why(t, id)
			return !slices.ContainsFunc(told.Hops, func(h streamstory.Hop) bool { return h.State != "ended" })
		})
		return told.Hops[len(told.Hops)-1].Hop, told
	}
	request := func(i int, field, name string) ask {
		a := ask{"model": model, "max_tokens": 4, "messages": []any{map[string]any{"role": "user", "content": fmt.Sprint(i, " is how this begins, and ", strings.Repeat("so on, ", 20))}}}
		a[field] = name
		return a
	}
	used := map[string]bool{}
	n := 0
	for s := range 8 {
		name, field := fmt.Sprint("session-", s), []string{"user", "prompt_cache_key"}[s%2]
		first := ""
		for range 4 {
			n++
			worker, told := on(request(n, field, name), fmt.Sprint("s-", n))
			if first == "" {
				first = worker
			}
			if worker != first {
				t.Errorf("%s: %s answered one of its requests, and %s another", name, first, worker)
			}
			if told.Tokens.Cached == nil {
				t.Error("the story does not say how much of the prompt was cached:", told.Tokens)
			}
		}
		used[first] = true
	}
	if len(used) < 2 {
		t.Errorf("all sessions are on %v", used)
	}
	r := w.post(t, request(0, "prompt_cache_key", strings.Repeat("x", 257)))
	if r.status != http.StatusBadRequest || !strings.Contains(string(r.body), `"param":"prompt_cache_key"`) {
		t.Errorf("status %d: %s", r.status, r.body)
	}
}
