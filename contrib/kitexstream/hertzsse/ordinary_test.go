package hertzsse_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/protocol/http1/resp"
	"github.com/cloudwego/hertz/pkg/protocol/sse"

	"github.com/whence-dev/whence/contrib/kitexstream/hertzsse"
	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// An upperWriter is the writer of another middleware.
type upperWriter struct {
	c    *app.RequestContext
	body bytes.Buffer
}

// Write implements network.ExtWriter.
func (w *upperWriter) Write(p []byte) (int, error) { return w.body.Write(bytes.ToUpper(p)) }

// Flush implements network.ExtWriter.
func (w *upperWriter) Flush() error { return nil }

// Finalize implements network.ExtWriter.
func (w *upperWriter) Finalize() error {
	out := resp.NewChunkedBodyWriter(&w.c.Response, w.c.GetWriter())
	if _, err := out.Write(w.body.Bytes()); err != nil {
		return err
	}
	return out.Finalize()
}

// upper is a middleware that installs an upperWriter.
func upper(ctx context.Context, c *app.RequestContext) {
	c.Response.HijackWriter(&upperWriter{c: c})
	c.Next(ctx)
}

// TestResponsesAreTheSameWithTheMiddleware compares the bytes of responses with and without the
// middleware.
func TestResponsesAreTheSameWithTheMiddleware(t *testing.T) {
	for name, handlers := range map[string][]app.HandlerFunc{
		"JSON":             {func(_ context.Context, c *app.RequestContext) { c.JSON(http.StatusOK, map[string]int{"cents": 100}) }},
		"refusal":          {func(_ context.Context, c *app.RequestContext) { c.String(http.StatusTooManyRequests, "full") }},
		"a body set twice": {func(_ context.Context, c *app.RequestContext) { c.SetBodyString("first"); c.SetBodyString("second") }},
		"writes": {func(_ context.Context, c *app.RequestContext) {
			_, _ = c.WriteString("a")
			_ = c.Flush()
			_, _ = c.Write([]byte("b"))
		}},
		"a raw body":    {func(_ context.Context, c *app.RequestContext) { c.Response.SetBodyRaw([]byte("raw")); _ = c.Flush() }},
		"a body stream": {func(_ context.Context, c *app.RequestContext) { c.SetBodyStream(strings.NewReader("a stream"), -1) }},
		"no body":       {func(_ context.Context, c *app.RequestContext) { c.Status(http.StatusNoContent) }},
		"written as a whole": {func(_ context.Context, c *app.RequestContext) {
			c.SetContentType("text/event-stream")
			_, _ = c.WriteString("data: 1\n\n")
		}},
		"a writer of the handler": {func(_ context.Context, c *app.RequestContext) {
			c.SetContentType("application/x-ndjson")
			w := resp.NewChunkedBodyWriter(&c.Response, c.GetWriter())
			c.Response.HijackWriter(w)
			_, _ = w.Write([]byte("{}\n"))
		}},
		"a writer of another middleware": {upper, func(_ context.Context, c *app.RequestContext) { c.SetBodyString("loud") }},
		"a stream through a writer of another middleware": {upper, func(_ context.Context, c *app.RequestContext) {
			_ = sse.NewWriter(c).WriteEvent("", "", []byte("loud"))
		}},
		"a stream": {func(_ context.Context, c *app.RequestContext) {
			w := sse.NewWriter(c)
			_ = w.WriteComment("hello")
			_ = w.WriteEvent("1", "price", []byte("100"))
		}},
		"an empty stream": {func(_ context.Context, c *app.RequestContext) { sse.NewWriter(c) }},
		"a stream after bytes of a body": {func(_ context.Context, c *app.RequestContext) {
			_, _ = c.WriteString("lost")
			_ = sse.NewWriter(c).WriteEvent("", "", []byte("1"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			last := len(handlers) - 1
			watched := append(append([]app.HandlerFunc{}, handlers[:last]...), hertzsse.Server(newHop(t, "exchange").Monitor), handlers[last])
			plain, got := response(t, handlers), response(t, watched)
			if plain != got {
				t.Errorf("with the middleware\n%q\nwithout it\n%q", got, plain)
			}
		})
	}
}

// response returns the bytes of the answer of handlers, without the date.
func response(t *testing.T, handlers []app.HandlerFunc) string {
	t.Helper()
	ln := kitextest.Listen(t)
	srv := server.New(server.WithListener(ln), server.WithDisablePrintRoute(true), server.WithExitWaitTime(0))
	srv.GET("/", handlers...)
	done := make(chan error, 1)
	go func() { done <- srv.Run() }()
	kitextest.Eventually(t, "the server runs", srv.IsRunning)
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: exchange\r\nConnection: close\r\n\r\n")
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Header.Del("Date")
	b, err := httputil.DumpResponse(answer, true)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = srv.Shutdown(ctx)
	<-done
	return string(b)
}

// TestAnOrdinaryResponseIsNoStream: neither side counts the response, and the client gets an error.
func TestAnOrdinaryResponseIsNoStream(t *testing.T) {
	at, caller := newHop(t, "exchange"), newHop(t, "shop")
	open := serve(t, at, caller, func(_ context.Context, c *app.RequestContext) { c.JSON(http.StatusOK, map[string]int{"cents": 100}) })
	if _, err := open(t.Context()); err == nil || !strings.Contains(err.Error(), "text/event-stream") {
		t.Errorf("the client got %v", err)
	}
	for who, h := range map[string]hop{"server": at, "client": caller} {
		ctx, cancel := context.WithTimeout(context.Background(), kitextest.Patience)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if records := h.records.All(); len(records) != 0 {
			t.Errorf("the %s has the records %v", who, records)
		}
	}
}

// TestACallAbandonedByItsHandler: the client of the handler still has its connection.
func TestACallAbandonedByItsHandler(t *testing.T) {
	at, middle, shop := newHop(t, "exchange"), newHop(t, "middle"), newHop(t, "shop")
	below := serve(t, at, middle, func(ctx context.Context, c *app.RequestContext) {
		_ = sse.NewWriter(c).WriteEvent("", "", []byte("100"))
		<-ctx.Done()
	})
	left := make(chan *hertzsse.Reader, 1)
	open := serve(t, newHop(t, "middle"), shop, func(ctx context.Context, c *app.RequestContext) {
		r, err := below(ctx)
		if err != nil {
			t.Error(err)
		}
		left <- r
		_ = sse.NewWriter(c).WriteEvent("", "", []byte("100"))
	})
	r, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.ForEach(t.Context(), func(*sse.Event) error { return nil }); err != nil {
		t.Error(err)
	}
	_ = r.Close()
	_ = (<-left).Close()
	check(t, "middle's call", middle.record(t), streamerr.PeerReset, "middle")
	check(t, "exchange", at.record(t), streamerr.ClientGone, "middle > exchange")
}
