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

	"github.com/whence-dev/whence/api-service/connlimit"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRequestThatTheEdgeDoesNotAnswerGetsATypedError covers an edge that no longer listens, and a
// connection that breaks before the answer.
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

// A stalledWriter is a response to a client that does not read: a write blocks until its deadline
// is set to a time in the past.
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
	go func() { // an edge that resets the connection once the write blocks
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

// TestClientsBehindTrustedProxiesKeepTheirAddress: the edge gets the address that a trusted proxy names as the last one of
// X-Forwarded-For, and otherwise the address of the connection.
func TestClientsBehindTrustedProxiesKeepTheirAddress(t *testing.T) {
	got := make(chan string, 1)
	edge := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- strings.Join(r.Header.Values("X-Forwarded-For"), " | ")
	}))
	defer edge.Close()
	var proxies connlimit.Proxies
	if err := proxies.Set("192.0.2.0/24"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config     Config
		from       string
		lines      []string
		want, what string
	}{
		{Config{Proxies: proxies}, "192.0.2.1:4711", []string{"forged, 198.51.100.7"}, "198.51.100.7", "a trusted proxy"},
		{Config{Proxies: proxies}, "192.0.2.1:4711", []string{"203.0.113.1", "198.51.100.7:99"}, "198.51.100.7:99", "a trusted proxy with a line of its own"},
		{Config{Proxies: proxies}, "[::ffff:192.0.2.1]:4711", []string{"198.51.100.7"}, "198.51.100.7", "a trusted proxy, as an IPv6 address"},
		{Config{Proxies: proxies}, "192.0.2.1:4711", []string{"unknown"}, "192.0.2.1", "a trusted proxy without an address"},
		{Config{Proxies: proxies}, "192.0.2.1:4711", nil, "192.0.2.1", "a trusted proxy without the header"},
		{Config{Proxies: proxies}, "198.51.100.9:4711", []string{"203.0.113.1"}, "198.51.100.9", "a client that forges its address"},
		{Config{}, "192.0.2.1:4711", []string{"203.0.113.1"}, "192.0.2.1", "no trusted proxies"},
		{Config{TrustForwarded: true}, "198.51.100.9:4711", []string{"198.51.100.7"}, "198.51.100.7", "all are trusted"},
	} {
		transport := &http.Transport{}
		h := handler(t.Context(), &c.config, edge.Listener.Addr(), transport, slog.New(slog.DiscardHandler))
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil)
		req.RemoteAddr = c.from
		req.Header["X-Forwarded-For"] = c.lines
		h.ServeHTTP(httptest.NewRecorder(), req)
		transport.CloseIdleConnections()
		if peer := <-got; peer != c.want {
			t.Errorf("%s: X-Forwarded-For is %q, want %q", c.what, peer, c.want)
		}
	}
}
