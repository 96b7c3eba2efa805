package kitexstream_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/endpoint/cep"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/transport"

	"github.com/whence-dev/whence/contrib/kitexstream"
	pb "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/grpc/prices"
	pbprices "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/grpc/prices/prices"
	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
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
	open := bindings[0].dial(t, addr, watching(caller))
	func() {
		st, err := open(context.Background())
		if err == nil {
			_, err = st.recv(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
	}()
	ctx, cancel := context.WithTimeout(kitextest.Context(t), kitextest.Patience)
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
			check(t, "root", only(t, caller.records.All(), "client"), streamerr.PeerReset, "root")
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestBidiStreamsBesideMiddleware: the caller's middleware sees every message and may change it,
// and the suite counts the messages.
func TestBidiStreamsBesideMiddleware(t *testing.T) {
	at, caller := newHop(t, "leaf", func(c *monitor.Config) { c.Ratio = 1 }), newHop(t, "root", func(c *monitor.Config) { c.Ratio = 1 })
	addr, _ := bindings[0].serveAt(t, at, nil)
	var passed []string
	shop, err := pbprices.NewClient("next", client.WithHostPorts(addr), client.WithTransportProtocol(transport.GRPC),
		watching(caller),
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
	ctx := kitextest.Context(t)
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
	if leaf.Received.Messages != 3 || root.Sent.Messages != 3 {
		t.Errorf("%d symbols were sent, %d received, not 3", root.Sent.Messages, leaf.Received.Messages)
	}
	if got := kinds(leaf); !slices.Contains(got, "recv_trailer") {
		t.Errorf("the leaf has the events %v", got)
	}
}

// TestAPlainCallersPathOverTTStream: a caller without a suite cancels, and Kitex's own path of the
// cancel reaches the leaf through a handler that has wrapped its context. It fails if Kitex changes
// the text of its exceptions.
func TestAPlainCallersPathOverTTStream(t *testing.T) {
	if len(canceling()) < len(bindings) {
		t.Skip("this version of Kitex sends no cancels over TTHeader Streaming")
	}
	b := bindings[2]
	at, middle := newHop(t, "leaf", nil), newHop(t, "middle", nil)
	leafAt, _ := b.serveAt(t, at, func(ctx context.Context, send func(int64) error) error {
		if err := send(1); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	below := b.dial(t, leafAt, named("middle"), watching(middle, kitexstream.ForwardCauses()))
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
	ctx, cancel := context.WithCancel(kitextest.Context(t))
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
	for _, b := range canceling() {
		t.Run(b.system, func(t *testing.T) {
			at, caller := newHop(t, "leaf", nil), newHop(t, "root", func(c *monitor.Config) { c.Ratio = 1 })
			addr, _ := b.serveAt(t, at, func(ctx context.Context, send func(int64) error) error {
				err := send(1)
				<-ctx.Done()
				return err
			})
			ctx, cancel := context.WithCancelCause(kitextest.Context(t))
			defer cancel(nil)
			st, err := b.dial(t, addr, named("root"), watching(caller))(ctx)
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
