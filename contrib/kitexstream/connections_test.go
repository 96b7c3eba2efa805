package kitexstream

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/server"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	pb "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/grpc/prices"
	"github.com/whence-dev/whence/contrib/kitexstream/examples/gen/grpc/prices/prices"
	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
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
	for deadline := time.Now().Add(kitextest.Patience); w.conns.has(caller) && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	w.seen <- w.conns.has(caller)
	return ctx.Err()
}

func TestServerKnowsWhoIsConnected(t *testing.T) {
	w := &waiter{conns: &connections{open: map[string]int{}}, seen: make(chan bool)}
	ln := kitextest.Listen(t)
	exit, served := make(chan error), make(chan error, 1)
	srv := prices.NewServer(w, server.WithListener(ln), server.WithBoundHandler(w.conns), server.WithExitSignal(func() <-chan error { return exit }))
	go func() { served <- srv.Run() }()
	defer func() {
		close(exit)
		<-served
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var call bytes.Buffer
	call.WriteString(http2.ClientPreface)
	frames, headers := http2.NewFramer(&call, nil), new(bytes.Buffer)
	encoder := hpack.NewEncoder(headers)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/prices.Prices/Watch"}, {":authority", "prices"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		frames.WriteSettings(),
		frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true}),
		frames.WriteData(1, true, make([]byte, 5)), // an empty message
	); err != nil {
		t.Fatal(err)
	}
	if _, err := call.WriteTo(conn); err != nil {
		t.Fatal(err)
	}
	if !<-w.seen {
		t.Error("the caller of a live call is not connected")
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if <-w.seen {
		t.Error("a caller whose connection has ended is connected")
	}
}
