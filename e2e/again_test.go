package e2e

import (
	"fmt"
	"net/http"
	"testing"
)

// TestAnsweredRequestReleasesItsIDAndPlace covers clients that send the next request as soon as
// they have read an answer: neither the id nor the place of the last request may block the next
// request.
func TestAnsweredRequestReleasesItsIDAndPlace(t *testing.T) {
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
			t.Errorf("%d of %d requests were refused with %s", n, times, why)
		}
	})
}
