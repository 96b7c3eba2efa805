package e2e

import (
	"fmt"
	"net/http"
	"testing"
)

// TestAnAnsweredRequestHoldsNothing is about clients that ask again as soon as they have read an answer: nothing of the
// last request may be in the way of the next one, neither its id nor its place.
func TestAnAnsweredRequestHoldsNothing(t *testing.T) {
	full := flags{worker: []string{"--max-running", "1", "--max-queued", "0"}}
	eachTopology(t, full, func(t *testing.T, w *whence) {
		refused := map[string]int{}
		const times = 300
		for i := range times {
			resp, err := w.send(t, greedy("What is 2 + 3?", "max_tokens", 2, "stream", i%2 == 0), "always-the-same")
			if err != nil {
				t.Fatal(err)
			}
			if r := readAll(t, resp); r.status != http.StatusOK {
				refused[fmt.Sprintf("status %d: %s", r.status, r.body)]++
			}
		}
		for why, n := range refused {
			t.Errorf("%d of %d requests are refused with %s", n, times, why)
		}
	})
}
