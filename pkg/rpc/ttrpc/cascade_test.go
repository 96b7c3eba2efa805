package ttrpc_test

import (
	"context"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/server"

	twin "github.com/whence-dev/whence/idl/gen/thrift/chatv1"
	"github.com/whence-dev/whence/idl/gen/thrift/chatv1/chat"
	"github.com/whence-dev/whence/internal/pollnet/pollnettest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A relay is a Kitex service that forwards a stream. wrap derives the context of its call from the
// context of its handler.
type relay struct {
	twin.Chat // its other methods are not called

	below chat.Client
	wrap  func(context.Context) (context.Context, context.CancelFunc)
}

// Generate implements twin.Chat.
func (r *relay) Generate(ctx context.Context, above twin.Chat_GenerateServer) error {
	ctx, cancel := r.wrap(ctx)
	defer cancel()
	st, err := r.below.Generate(ctx)
	if err != nil {
		return err
	}
	req, err := above.Recv(ctx)
	if err != nil {
		return err
	}
	if err := st.Send(ctx, req); err != nil {
		return err
	}
	for {
		out, err := st.Recv(ctx)
		if err != nil {
			return err
		}
		if err := above.Send(ctx, out); err != nil {
			return err
		}
	}
}

// serveRelay serves a relay with Kitex only.
func serveRelay(t *testing.T, r *relay) (addr string) {
	t.Helper()
	ln := pollnettest.Listen(t)
	exit := make(chan error)
	svr := server.NewServer(server.WithListener(ln), server.WithExitSignal(func() <-chan error { return exit }), server.WithExitWaitTime(100*time.Millisecond))
	if err := svr.RegisterService(chat.NewServiceInfo(), r); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = svr.Run() }() // the error concerns connections that are still open
	t.Cleanup(func() { close(exit); <-ended })
	return ln.Addr().String()
}

// TestPathOfACancelNamesTheServices: shop calls cart, which calls us. The path begins again at a
// service that wraps the context of its handler, because Kitex no longer finds its own error in the
// context.
func TestPathOfACancelNamesTheServices(t *testing.T) {
	s := newService("chat")
	below, err := chat.NewClient("chat", client.WithHostPorts(serve(t, s)), client.WithTransportProtocol(tt),
		client.WithClientBasicInfo(&rpcinfo.EndpointBasicInfo{ServiceName: "cart"}))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		wrap func(context.Context) (context.Context, context.CancelFunc)
		path string
	}{
		"as it is": {func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }, "shop > cart"},
		"wrapped":  {context.WithCancel, "cart"},
	} {
		t.Run(name, func(t *testing.T) {
			addr := serveRelay(t, &relay{below: below, wrap: c.wrap})
			ctx, cancel := context.WithCancel(t.Context())
			st := open(ctx, t, kitexClient(t, addr, tt), "")
			cancel()
			_, _ = drain(ctx, st)
			if got := <-s.causes; got.Reason != streamerr.PeerReset || got.Path.String() != c.path {
				t.Errorf("the engine was stopped with %v", got)
			}
		})
	}
}
