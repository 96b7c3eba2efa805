package e2e

import (
	"io"
	"net/http"
	"testing"
)

// TestProfilesStayOffThePublicListener: --pprof serves profiles only on --metrics-listen of every
// service.
func TestProfilesStayOffThePublicListener(t *testing.T) {
	profiled := flags{all: []string{"--metrics-listen", "127.0.0.1:0", "--pprof"}}
	eachTopology(t, profiled, func(t *testing.T, w *whence) {
		status := func(url string) int {
			resp, err := w.http.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		for _, p := range w.all() {
			if got := status("http://" + must(t)(p.Metrics()) + "/debug/pprof/goroutine"); got != http.StatusOK {
				t.Errorf("%s: the profile of goroutines has status %d", p.Name, got)
			}
		}
		if got := status(w.url("/debug/pprof/goroutine")); got != http.StatusNotFound {
			t.Errorf("the public listener answers a request for a profile with status %d", got)
		}
	})
}
