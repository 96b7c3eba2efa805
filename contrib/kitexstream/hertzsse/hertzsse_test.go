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

	"github.com/whence-dev/whence/contrib/kitexstream/hertzsse"
	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

func TestMain(m *testing.M) {
	hlog.SetOutput(io.Discard)
	kitextest.Main(m)
}

// A hop has a monitor whose records a test reads.
type hop struct {
	*monitor.Monitor
	records *kitextest.Records
}

func newHop(t *testing.T, name string) hop {
	t.Helper()
	records := new(kitextest.Records)
	h := hop{monitor.New(monitor.Config{Name: name, Ratio: 1, ErrorTexts: true, Exporter: records}), records}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.Close(ctx)
	})
	return h
}

// record waits until the stream of the hop has ended, and returns its only record.
func (h hop) record(t *testing.T) *monitor.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), kitextest.Patience)
	defer cancel()
	if err := h.Close(ctx); err != nil {
		t.Fatal(err)
	}
	records := h.records.All()
	if len(records) != 1 {
		t.Fatalf("there are %d records, not 1", len(records))
	}
	return records[0]
}

func check(t *testing.T, who string, r *monitor.Record, reason streamerr.Reason, path string, events ...monitor.Kind) {
	t.Helper()
	if r.Reason != reason || r.Path.String() != path {
		t.Errorf("%s: %s [%s] (%s), not %s [%s]", who, r.Reason.String(), r.Path, r.Message, reason.String(), path)
	}
	for _, kind := range events {
		if !slices.ContainsFunc(r.Events, func(e monitor.Event) bool { return e.Kind == kind }) {
			t.Errorf("%s: no event %s in %v", who, kind, r.Events)
		}
	}
}

// serve serves h at /prices/:symbol until the test ends, and returns an open function of a client.
func serve(t *testing.T, at, caller hop, h app.HandlerFunc) func(context.Context) (*hertzsse.Reader, error) {
	t.Helper()
	ln := kitextest.Listen(t)
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
	kitextest.Eventually(t, "the server runs", srv.IsRunning)
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
	served, called := at.record(t), caller.record(t)
	check(t, "server", served, streamerr.Completed, "exchange", "recv_header", "send_header", "send_trailer", "send")
	check(t, "client", called, streamerr.Completed, "exchange > shop", "send_header", "recv_header", "recv_trailer", "recv")
	if served.Sent.Messages != 3 || called.Received.Messages != 3 {
		t.Errorf("sent %d, received %d events, not 3", served.Sent.Messages, called.Received.Messages)
	}
	if served.Parent.Span != called.Self.Span || served.Peer != "shop" {
		t.Error("the records are not one trace")
	}
	if served.Name != "/prices/:symbol" {
		t.Errorf("the method of the record is %s", served.Name)
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
		told <- monitor.Cause(wrapped)
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
	check(t, "server", at.record(t), streamerr.ClientGone, "shop > exchange", "recv_rst")
	check(t, "client", caller.record(t), streamerr.UserStop, "user > shop", "send_rst")
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
		check(t, "server", at.record(t), streamerr.Overloaded, "exchange")
	})
	t.Run("refusal", func(t *testing.T) {
		at, caller := newHop(t, "exchange"), newHop(t, "shop")
		open := serve(t, at, caller, func(_ context.Context, c *app.RequestContext) {
			c.JSON(http.StatusTooManyRequests, map[string]string{"why": "full"})
		})
		if _, err := open(t.Context()); !errors.Is(err, streamerr.Overloaded) {
			t.Errorf("the client got %v", err)
		}
		check(t, "server", at.record(t), streamerr.Overloaded, "exchange")
		check(t, "client", caller.record(t), streamerr.Overloaded, "exchange > shop")
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
	check(t, "client", caller.record(t), streamerr.Internal, "shop", "send_rst")
	at.record(t)
}
