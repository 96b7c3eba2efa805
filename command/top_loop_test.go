package command

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/logtest"
)

// serveTopFunc serves requests for which answer returns false like a healthy api-service.
func serveTopFunc(t *testing.T, answer func(http.ResponseWriter, *http.Request) bool) *remote {
	t.Helper()
	e := healthyEdge()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answer(w, r) {
			e.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.Close()
	})
	return &remote{URL: s.URL}
}

// TestTopQuitsWhileTheServiceIsSlow covers the requests of both keys, which are never answered.
func TestTopQuitsWhileTheServiceIsSlow(t *testing.T) {
	for name, pressed := range map[string][]key{"stop": {"x", "y"}, "story": {"\r"}} {
		asked := make(chan struct{})
		api := serveTopFunc(t, func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v1/streams/a" {
				return false
			}
			close(asked)
			<-r.Context().Done()
			return true
		})
		b, keys := boardOf(t, api), make(chan key)
		go func() {
			for _, k := range pressed {
				keys <- k
			}
			<-asked
			keys <- "x"
			keys <- "\x03" // while top asks whether to stop the stream
		}()
		done := make(chan error, 1)
		go func() { done <- topLoop(t.Context(), api, time.Hour, b, io.Discard, keys) }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(8 * time.Second): // less than a request may take
			t.Fatalf("%s: top does not quit", name)
		}
	}
}

func TestResultsOfKeysAreShown(t *testing.T) {
	api := serveTopFunc(t, func(w http.ResponseWriter, r *http.Request) bool {
		switch r.Method + " " + r.URL.Path {
		case "DELETE /v1/streams/a":
			w.WriteHeader(http.StatusAccepted)
			_, _ = w.Write([]byte(`{}`))
		case "GET /v1/streams/a":
			_, _ = w.Write([]byte(`{"id":"a","state":"live","hops":[{}],"tokens":{}}`))
		default:
			return false
		}
		return true
	})
	b := boardOf(t, api)
	press := func(k key) boardRequest {
		ask, _ := b.press(k)
		return ask
	}
	press("x")
	ask := press("y")
	if press("\r") != nil || !strings.Contains(b.message, "not answered") {
		t.Errorf("a second request begins: %q", b.message)
	}
	b.take(ask(t.Context(), api))
	if b.message != "a is stopping" {
		t.Error(b.message)
	}
	ask = press("\r")
	b.take(ask(t.Context(), api))
	if len(b.story) == 0 || !strings.HasPrefix(b.story[0], "a  live") || b.message != "" {
		t.Errorf("%q, %q", b.story, b.message)
	}
}

// TestTopRepeatsWithoutATerminal: with --every, also while the service is away for a time.
func TestTopRepeatsWithoutATerminal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var looks atomic.Int32
	api := serveTopFunc(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/streams" || r.URL.Query().Get("state") != "" {
			return false
		}
		look := looks.Add(1)
		switch look {
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		case 4:
			cancel()
		}
		return look == 2
	})
	var out, errs logtest.Log
	status := cli.Execute(ctx, Top(), []string{"--url", api.URL, "--every", "1ms"}, &out, &errs)
	if n := strings.Count(out.String(), "2 live at "); status != 0 || n != 2 || !strings.Contains(errs.String(), "retrying: ") {
		t.Errorf("status %d, %d samples, %s", status, n, &errs)
	}
}
