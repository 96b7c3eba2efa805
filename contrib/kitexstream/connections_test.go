package kitexstream

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/whence-dev/whence/idl/gen/example/grpc/prices"
	"github.com/whence-dev/whence/idl/gen/example/grpc/prices/prices"
	"github.com/whence-dev/whence/internal/pollnet/pollnettest"
	"github.com/whence-dev/whence/internal/polltest"
)

// A waiter is a service whose stream waits for the end of its caller.
type waiter struct {
	pb.Prices
	conns *connections
	seen  chan bool // whether the caller is connected: at the beginning, and after the end of the context
}

func (w *waiter) Watch(ctx context.Context, _ *pb.Symbol, _ pb.Prices_WatchServer) error {
	caller := rpcinfo.GetRPCInfo(ctx).From().Address()
	w.seen <- w.conns.has(caller)
	<-ctx.Done()
	for deadline := time.Now().Add(polltest.Patience); w.conns.has(caller) && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	w.seen <- w.conns.has(caller)
	return ctx.Err()
}

func TestServerKnowsWhoIsConnected(t *testing.T) {
	w := &waiter{conns: &connections{open: map[string]int{}}, seen: make(chan bool)}
	ln := pollnettest.Listen(t)
	exit, served := make(chan error), make(chan error, 1)
	srv := prices.NewServer(w, server.WithListener(ln), server.WithBoundHandler(w.conns), server.WithExitSignal(func() <-chan error { return exit }))
	go func() { served <- srv.Run() }()
	defer func() {
		close(exit)
		<-served
	}()
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	st, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/prices.Prices/Watch")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(st.SendMsg(&emptypb.Empty{}), st.CloseSend()); err != nil {
		t.Fatal(err)
	}
	if !<-w.seen {
		t.Error("the caller of a live call is not connected")
	}
	if err := cc.Close(); err != nil {
		t.Fatal(err)
	}
	if <-w.seen {
		t.Error("a caller whose connection has ended is connected")
	}
}
