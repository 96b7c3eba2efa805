package hertzsse_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/protocol"
	"github.com/cloudwego/hertz/pkg/protocol/sse"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/whence-dev/whence/contrib/kitexstream/hertzsse"
	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/pollnet/pollnettest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) {
	hlog.SetOutput(io.Discard)
	leaktest.Main(m)
}

// A lastingExporter keeps the spans when a monitor closes.
type lastingExporter struct{ *tracetest.InMemoryExporter }

// Shutdown implements the SDK's SpanExporter.
func (lastingExporter) Shutdown(context.Context) error { return nil }

// A hop has a monitor whose spans a test reads.
type hop struct {
	*telemetry.Monitor
	spans *tracetest.InMemoryExporter
}

func newHop(t *testing.T, name string) hop {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	h := hop{telemetry.New(telemetry.Config{Name: name, Ratio: 1, ErrorTexts: true, Exporters: []sdktrace.SpanExporter{lastingExporter{spans}}}), spans}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.Close(ctx)
	})
	return h
}

// span waits until the stream of the hop has ended, and returns its only span.
func (h hop) span(t *testing.T) *tracetest.SpanStub {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
	defer cancel()
	if err := h.Close(ctx); err != nil {
		t.Fatal(err)
	}
	spans := h.spans.GetSpans()
	if len(spans) != 1 {
		t.Fatalf("there are %d spans, not 1", len(spans))
	}
	return &spans[0]
}

func attr(s *tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

func check(t *testing.T, who string, s *tracetest.SpanStub, reason streamerr.Reason, path string, events ...string) {
	t.Helper()
	if attr(s, "whence.reason") != reason.String() || attr(s, "whence.path") != path {
		t.Errorf("%s: %s [%s] (%s), not %s [%s]", who, attr(s, "whence.reason"), attr(s, "whence.path"), s.Status.Description, reason, path)
	}
	for _, name := range events {
		if !slices.ContainsFunc(s.Events, func(e sdktrace.Event) bool { return e.Name == name }) {
			t.Errorf("%s: no event %s in %v", who, name, s.Events)
		}
	}
}

// serve serves h at /prices/:symbol until the test ends, and returns an open function of a client.
func serve(t *testing.T, at, caller hop, h app.HandlerFunc) func(context.Context) (*hertzsse.Reader, error) {
	t.Helper()
	ln := pollnettest.Listen(t)
	srv := server.New(server.WithListener(ln), server.WithSenseClientDisconnection(true), server.WithDisablePrintRoute(true), server.WithExitWaitTime(0))
	srv.GET("/prices/:symbol", hertzsse.Server(at.Monitor), h)
	done := make(chan error, 1)
	go func() { done <- srv.Run() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
		<-done
	})
	polltest.Eventually(t, "the server runs", srv.IsRunning)
	c, err := client.NewClient(client.WithResponseBodyStream(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	events := &hertzsse.Client{Monitor: caller.Monitor, Do: c, Peer: "exchange"}
	return func(ctx context.Context) (*hertzsse.Reader, error) {
		req := &protocol.Request{}
		req.SetRequestURI("http://" + ln.Addr().String() + "/prices/WHNC")
		return events.Open(ctx, req, "/prices/:symbol")
	}
}

func TestACompletedStreamIsCounted(t *testing.T) {
	at, caller := newHop(t, "exchange"), newHop(t, "shop")
	open := serve(t, at, caller, func(_ context.Context, c *app.RequestContext) {
		w := sse.NewWriter(c)
		_ = w.WriteComment("not an event")
		for range 3 {
			_ = w.WriteEvent("", "price", []byte("100"))
		}
	})
	r, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := r.ForEach(t.Context(), func(*sse.Event) error { n++; return nil }); err != nil || n != 3 {
		t.Errorf("%d events, and %v", n, err)
	}
	_ = r.Close()
	served, called := at.span(t), caller.span(t)
	check(t, "server", served, streamerr.Completed, "exchange", "recv_header", "send_header", "send_trailer", "send")
	check(t, "client", called, streamerr.Completed, "exchange > shop", "send_header", "recv_header", "recv_trailer", "recv")
	if attr(served, "whence.messages.sent") != "3" || attr(called, "whence.messages.received") != "3" {
		t.Errorf("sent %s, received %s events, not 3", attr(served, "whence.messages.sent"), attr(called, "whence.messages.received"))
	}
	if served.Parent.SpanID() != called.SpanContext.SpanID() || attr(served, "whence.peer") != "shop" {
		t.Error("the spans are not one trace")
	}
	if served.Name != "prices/:symbol" {
		t.Errorf("the name of the span is %s", served.Name)
	}
}

func TestAClientThatLeavesIsTheOrigin(t *testing.T) {
	at, caller := newHop(t, "exchange"), newHop(t, "shop")
	told := make(chan *streamerr.Error, 1)
	open := serve(t, at, caller, func(ctx context.Context, c *app.RequestContext) {
		wrapped, cancel := context.WithCancel(ctx)
		defer cancel()
		_ = sse.NewWriter(c).WriteEvent("", "", []byte("100"))
		<-wrapped.Done()
		told <- telemetry.Cause(wrapped)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	r, err := open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = r.ForEach(ctx, func(*sse.Event) error {
		cancel(&streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath("user"), Message: "enough"})
		return nil
	})
	if err == nil {
		t.Error("the stream has completed")
	}
	_ = r.Close() // ForEach may have returned without closing the connection
	if e := <-told; e == nil || e.Reason != streamerr.ClientGone || e.Path.String() != "shop > exchange" {
		t.Errorf("the handler's cause is %v", e)
	}
	check(t, "server", at.span(t), streamerr.ClientGone, "shop > exchange", "recv_rst")
	check(t, "client", caller.span(t), streamerr.UserStop, "user > shop", "send_rst")
}

func TestAHandlersErrorAndRefusal(t *testing.T) {
	t.Run("error", func(t *testing.T) {
		at, caller := newHop(t, "exchange"), newHop(t, "shop")
		open := serve(t, at, caller, func(_ context.Context, c *app.RequestContext) {
			_ = sse.NewWriter(c).WriteEvent("", "", []byte("100"))
			_ = c.Error(streamerr.New(streamerr.Overloaded, "the feed is full"))
		})
		r, err := open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = r.ForEach(t.Context(), func(*sse.Event) error { return nil })
		check(t, "server", at.span(t), streamerr.Overloaded, "exchange")
	})
	t.Run("refusal", func(t *testing.T) {
		at, caller := newHop(t, "exchange"), newHop(t, "shop")
		open := serve(t, at, caller, func(_ context.Context, c *app.RequestContext) {
			c.JSON(http.StatusTooManyRequests, map[string]string{"why": "full"})
		})
		if _, err := open(t.Context()); !errors.Is(err, streamerr.Overloaded) {
			t.Errorf("the client got %v", err)
		}
		check(t, "server", at.span(t), streamerr.Overloaded, "exchange")
		check(t, "client", caller.span(t), streamerr.Overloaded, "exchange > shop")
	})
}

func TestAnErrorOfTheReaderIsNotTheServers(t *testing.T) {
	at, caller := newHop(t, "exchange"), newHop(t, "shop")
	open := serve(t, at, caller, func(ctx context.Context, c *app.RequestContext) {
		_ = sse.NewWriter(c).WriteEvent("", "", []byte("100"))
		<-ctx.Done()
	})
	r, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mine := errors.New("cannot parse")
	if err := r.ForEach(t.Context(), func(*sse.Event) error { return mine }); !errors.Is(err, mine) {
		t.Error(err)
	}
	_ = r.Close()
	check(t, "client", caller.span(t), streamerr.Internal, "shop", "send_rst")
	at.span(t)
}
