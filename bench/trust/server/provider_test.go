package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestOnlyRefusedRequestsAreCounted: the worker's trial is answered, and every other request is refused.
func TestOnlyRefusedRequestsAreCounted(t *testing.T) {
	p, err := NewProvider("m", http.StatusTooManyRequests)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for body, want := range map[string]int{`{"max_tokens":1}`: http.StatusOK, `{"max_tokens":5}`: http.StatusTooManyRequests, `{}`: http.StatusTooManyRequests} {
		resp, err := client.Post(p.URL+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s has the status %d, want %d", body, resp.StatusCode, want)
		}
	}
	if n := p.Requests.Load(); n != 2 {
		t.Errorf("%d requests were refused, want 2", n)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
