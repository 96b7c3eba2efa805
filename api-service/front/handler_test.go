package front

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRequestThatTheEdgeDoesNotAnswerGetsATypedError covers an edge that no longer listens, and a connection that
// breaks before the answer.
func TestRequestThatTheEdgeDoesNotAnswerGetsATypedError(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	for name, c := range map[string]struct {
		draining bool
		id       string
		status   int
		reason   streamerr.Reason
	}{
		"lost":     {false, "given-id", http.StatusBadGateway, streamerr.PeerLost},
		"draining": {true, "", http.StatusServiceUnavailable, streamerr.Draining},
	} {
		ctx, drain := context.WithCancel(t.Context())
		defer drain()
		if c.draining {
			drain()
		}
		var log bytes.Buffer
		transport := &http.Transport{}
		h := handler(ctx, &Config{Name: "api-service/7", WriteTimeout: time.Minute}, ln.Addr(), transport, slog.New(slog.NewTextHandler(&log, nil)))
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader("{}"))
		req.Header.Set("X-Request-Id", c.id)
		got := httptest.NewRecorder()
		h.ServeHTTP(got, req)
		transport.CloseIdleConnections()
		e, ok := streamerr.ParseJSON(got.Body.Bytes())
		if !ok || got.Code != c.status || e.Reason != c.reason || e.Path.String() != "api-service/7" {
			t.Errorf("%s: %d %s", name, got.Code, got.Body)
		}
		if got.Header().Get("Content-Type") != "application/json" || got.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %v", name, got.Header())
		}
		id := got.Header().Get("X-Request-Id")
		if id == "" || c.id != "" && id != c.id {
			t.Errorf("%s: the response has the id %q", name, id)
		}
		for _, want := range []string{"request refused", "stream=" + id, "hop=api-service/7", "reason=" + c.reason.String(), "refused\""} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s: the log lacks %q: %s", name, want, &log)
			}
		}
	}
}

// A stalledWriter is a response to a client that does not read: a write waits until its deadline is set to
// a time in the past.
type stalledWriter struct {
	header http.Header
	waits  chan struct{} // closed with the first write
	failed chan struct{} // closed by the deadline
}

func (u *stalledWriter) Header() http.Header { return u.header }
func (u *stalledWriter) WriteHeader(int)     {}
func (u *stalledWriter) Flush()              {}
func (u *stalledWriter) Write([]byte) (int, error) {
	close(u.waits)
	<-u.failed
	return 0, os.ErrDeadlineExceeded
}

func (u *stalledWriter) SetWriteDeadline(at time.Time) error {
	if time.Until(at) < time.Minute {
		close(u.failed)
	}
	return nil
}

func TestWriteToAClientThatDoesNotReadEndsWhenTheEdgeResets(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	u := &stalledWriter{http.Header{}, make(chan struct{}), make(chan struct{})}
	edge := make(chan error, 1)
	go func() { // an edge that resets the connection once the write waits
		conn, err := ln.Accept()
		if err != nil {
			edge <- err
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 4096))
		body := strings.Repeat("x", 1000)
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(body), body)
		<-u.waits
		edge <- errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
	}()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	h := handler(t.Context(), &Config{Name: "api-service", WriteTimeout: time.Hour}, ln.Addr(), transport, slog.New(slog.DiscardHandler))
	req := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.ServerContextKey, &http.Server{}), http.MethodGet, "/v1/streams/x/events", nil)
	func() {
		defer func() {
			if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // the server compares in the same way
				t.Errorf("the handler ended with %v, and the client's connection is not cut", v)
			}
		}()
		h.ServeHTTP(u, req)
	}()
	if err := <-edge; err != nil {
		t.Error(err)
	}
}
