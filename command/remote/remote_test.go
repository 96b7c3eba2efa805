package remote_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/whence-dev/whence/command/remote"
)

func TestURLsAreThoseOfTheClient(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/workers" {
			t.Errorf("the path is %s", r.URL.Path)
		}
		_, _ = w.Write([]byte(`{"workers":[{"name":"w"}]}`))
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for _, suffix := range []string{"", "/", "/v1", "/v1/"} {
		api := remote.Service{URL: s.URL + suffix}
		if err := api.Validate(); err != nil {
			t.Fatal(err)
		}
		if workers, err := api.Workers(t.Context()); err != nil || len(workers) != 1 {
			t.Errorf("%q: %v, %v", suffix, workers, err)
		}
	}
}
