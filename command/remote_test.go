package command

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/whence-dev/whence/pkg/streamerr"
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
		api := remote{URL: s.URL + suffix}
		if err := api.Validate(); err != nil {
			t.Fatal(err)
		}
		if workers, err := api.Workers(t.Context()); err != nil || len(workers) != 1 {
			t.Errorf("%q: %v, %v", suffix, workers, err)
		}
	}
}

// TestRefusalsNameTheFlagsOfKeys: a refusal for want of a key says which flag and which variable give
// one.
func TestRefusalsNameTheFlagsOfKeys(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write((&streamerr.Error{Reason: streamerr.Unauthenticated, Message: "a key is missing"}).JSON())
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for key, want := range map[string]string{"": "give a key with --key or WHENCE_KEY", "k": "is refused"} {
		api := remote{URL: s.URL, Key: key}
		_, err := api.Workers(t.Context())
		if !errors.Is(err, streamerr.Unauthenticated) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "a key is missing") {
			t.Errorf("with the key %q: %v", key, err)
		}
	}
}
