package kitexstream_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/endpoint/cep"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/transport"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	pb "github.com/whence-dev/whence/idl/gen/example/grpc/prices"
	pbprices "github.com/whence-dev/whence/idl/gen/example/grpc/prices/prices"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// TestAnUnreadStreamEnds covers a stream without a reader, which Kitex itself never detects.
func TestAnUnreadStreamEnds(t *testing.T) {
	caller := newHop(t, "root", nil)
	release := make(chan struct{})
	addr, _ := bindings[0].serveAt(t, newHop(t, "leaf", nil), func(_ context.Context, send func(int64) error) error {
		err := send(1)
		<-release
		return err
	})
	defer close(release)
	open := bindings[0].dial(t, addr, client.WithSuite(kitexstream.Client(caller.Monitor)))
	func() {
		st, err := open(context.Background())
		if err == nil {
			_, err = st.recv(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), polltest.Patience)
	defer cancel()
	collected := make(chan error, 1)
	go func() { collected <- caller.Close(ctx) }()
	for {
		runtime.GC()
		select {
		case err := <-collected:
			if err != nil {
				t.Fatal(err)
			}
			check(t, "root", only(t, caller.spans.GetSpans(), "client"), streamerr.PeerReset, "root")
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestATimeoutOfRecvIsTheCallersEnding: the timeout is an option of Kitex's clients.
func TestATimeoutOfRecvIsTheCallersEnding(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			caller := newHop(t, "root", nil)
			addr, _ := b.serveAt(t, newHop(t, "leaf", nil), func(ctx context.Context, _ func(int64) error) error { // may never run, because the timeout is short
				<-ctx.Done()
				return ctx.Err()
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			st, err := b.dial(t, addr, client.WithSuite(kitexstream.Client(caller.Monitor)), client.WithStreamOptions(
				client.WithStreamRecvTimeoutConfig(streaming.TimeoutConfig{Timeout: 20 * time.Millisecond})))(ctx)
			if err == nil {
				_, err = st.recv(ctx)
			}
			if err == nil {
				t.Fatal("Recv returned a message, not a timeout")
			}
			span := only(t, caller.ended(t), "client")
			check(t, "root", span, streamerr.Deadline, "root")
			if got := kinds(span); !slices.Contains(got, "send_rst") {
				t.Errorf("the root has the events %v", got)
			}
		})
	}
}

// TestBidiStreamsBesideMiddleware: the caller's middleware sees every message and may change it,
// and the suite counts the messages.
func TestBidiStreamsBesideMiddleware(t *testing.T) {
	at, caller := newHop(t, "leaf", func(c *telemetry.Config) { c.Ratio = 1 }), newHop(t, "root", func(c *telemetry.Config) { c.Ratio = 1 })
	addr, _ := bindings[0].serveAt(t, at, nil)
	var passed []string
	shop, err := pbprices.NewClient("next", client.WithHostPorts(addr), client.WithTransportProtocol(transport.GRPC),
		client.WithSuite(kitexstream.Client(caller.Monitor)),
		client.WithStreamOptions(client.WithStreamSendMiddleware(func(next cep.StreamSendEndpoint) cep.StreamSendEndpoint {
			return func(ctx context.Context, st streaming.ClientStream, m any) error {
				if symbol, ok := m.(*pb.Symbol); ok {
					passed = append(passed, symbol.GetName())
					symbol.Name = strings.ToUpper(symbol.GetName())
				}
				return next(ctx, st, m)
			}
		})))
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.KeepAlive(shop) // Kitex closes the connections of a client that is garbage
	ctx := t.Context()
	st, err := shop.Follow(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := st.Send(ctx, &pb.Symbol{Name: name}); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Recv(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.CloseSend(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(ctx); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if !slices.Equal(passed, []string{"a", "b", "c"}) {
		t.Errorf("the middleware has seen %v", passed)
	}
	leaf, root := only(t, at.ended(t), "server"), only(t, caller.ended(t), "client")
	check(t, "leaf", leaf, streamerr.Completed, "leaf")
	check(t, "root", root, streamerr.Completed, "leaf > root")
	if attr(leaf, "whence.messages.received") != "3" || attr(root, "whence.messages.sent") != "3" {
		t.Errorf("%s symbols were sent, %s received, not 3", attr(root, "whence.messages.sent"), attr(leaf, "whence.messages.received"))
	}
	if got := kinds(leaf); !slices.Contains(got, "recv_trailer") {
		t.Errorf("the leaf has the events %v", got)
	}
}

// TestSpansOfABrokenStreamInOTLP reads the file that a collector would read.
func TestSpansOfABrokenStreamInOTLP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spans.jsonl")
	file, err := streamtrace.FileExporter(path)
	if err != nil {
		t.Fatal(err)
	}
	at := newHop(t, "leaf", func(c *telemetry.Config) { c.Exporters = []sdktrace.SpanExporter{file} })
	addr, _ := bindings[2].serveAt(t, at, func(context.Context, func(int64) error) error { return errors.New("the feed broke") })
	st, err := bindings[2].dial(t, addr)(t.Context())
	for err == nil {
		_, err = st.recv(t.Context())
	}
	at.ended(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"key":"whence.reason","value":{"stringValue":"internal"}}`, `{"key":"whence.path","value":{"stringValue":"leaf"}}`,
		`"name":"send_trailer"`, `"message":"the feed broke"`,
	} {
		if !strings.Contains(strings.ReplaceAll(string(b), " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("%s is missing in %s", want, b)
		}
	}
}

// TestAPlainCallersPathOverTTStream: a caller without a suite cancels, and Kitex's own path of the
// cancel reaches the leaf through a handler that has wrapped its context. It fails if Kitex changes
// the text of its exceptions.
func TestAPlainCallersPathOverTTStream(t *testing.T) {
	b := bindings[2]
	at, middle := newHop(t, "leaf", nil), newHop(t, "middle", nil)
	leafAt, _ := b.serveAt(t, at, func(ctx context.Context, send func(int64) error) error {
		if err := send(1); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	below := b.dial(t, leafAt, named("middle"), client.WithSuite(kitexstream.Client(middle.Monitor, kitexstream.ForwardCauses())))
	middleAt, _ := b.serveAt(t, middle, func(ctx context.Context, send func(int64) error) error {
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		st, err := below(ctx)
		for err == nil {
			var cents int64
			if cents, err = st.recv(ctx); err == nil {
				err = send(cents)
			}
		}
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	st, err := b.dial(t, middleAt, named("shop"))(ctx)
	if err == nil {
		_, err = st.recv(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, _ = st.recv(ctx)
	check(t, "leaf", only(t, at.ended(t), "server"), streamerr.PeerReset, "shop > middle > leaf")
	check(t, "middle", only(t, middle.ended(t), "server"), streamerr.PeerReset, "shop > middle")
}

// TestACancelAsCompletedIsNoFailure: a caller that needs no more messages cancels with the reason
// completed.
func TestACancelAsCompletedIsNoFailure(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			at, caller := newHop(t, "leaf", nil), newHop(t, "root", func(c *telemetry.Config) { c.Ratio = 1 })
			addr, _ := b.serveAt(t, at, func(ctx context.Context, send func(int64) error) error {
				err := send(1)
				<-ctx.Done()
				return err
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			st, err := b.dial(t, addr, named("root"), client.WithSuite(kitexstream.Client(caller.Monitor)))(ctx)
			if err == nil {
				_, err = st.recv(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			cancel(streamerr.Completed)
			_, _ = st.recv(ctx)
			check(t, "root", only(t, caller.ended(t), "client"), streamerr.Completed, "root")
			check(t, "leaf", only(t, at.ended(t), "server"), streamerr.PeerReset, "root > leaf")
		})
	}
}
