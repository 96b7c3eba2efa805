// Command kitexttstream is an ordinary Kitex service over TTHeader Streaming, with two lines of package kitexstream: the suites of its
// server and of its client. A user leaves its first stream, and it prints the stream's trace.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/klog"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/transport"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	thrift "github.com/whence-dev/whence/idl/gen/example/ttstream/prices"
	"github.com/whence-dev/whence/idl/gen/example/ttstream/prices/prices"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An exchange serves prices until its caller has had enough.
type exchange struct{ thrift.Prices }

// Watch implements thrift.Prices. Its context is wrapped: Kitex itself then no longer knows who ended the stream.
func (exchange) Watch(ctx context.Context, _ *thrift.Symbol, st thrift.Prices_WatchServer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for n := range int64(3) {
		if err := st.Send(ctx, &thrift.Price{Cents: 100 + n}); err != nil {
			return err
		}
	}
	<-ctx.Done() // until the price changes
	return telemetry.Cause(ctx)
}

func main() {
	klog.SetOutput(io.Discard)
	if err := run(os.Stdout, telemetry.Text(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "kitexttstream:", err)
		os.Exit(1)
	}
}

// run serves prices, watches them as a shop, and exports the spans of both.
func run(out io.Writer, to sdktrace.SpanExporter) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := telemetry.New(telemetry.Config{Name: "exchange", Exporters: []sdktrace.SpanExporter{to}})
	called := telemetry.New(telemetry.Config{Name: "shop", Exporters: []sdktrace.SpanExporter{to}})
	exit := make(chan error)
	var done sync.WaitGroup
	defer done.Wait()
	defer close(exit)
	srv := prices.NewServer(&exchange{}, server.WithListener(ln), server.WithExitSignal(func() <-chan error { return exit }), server.WithExitWaitTime(time.Millisecond),
		server.WithSuite(kitexstream.Server(served)))
	done.Go(func() { _ = srv.Run() }) // which reports that streams were cut
	shop, err := prices.NewClient("exchange", client.WithHostPorts(ln.Addr().String()), client.WithTransportProtocol(transport.TTHeaderStreaming),
		client.WithSuite(kitexstream.Client(called)))
	if err == nil {
		err = watch(out, shop)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(err, called.Close(ctx), served.Close(ctx))
}

// watch prints three prices, has the user leave, and prints how the stream ended.
func watch(out io.Writer, shop prices.Client) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	st, err := shop.Watch(ctx, &thrift.Symbol{Name: "WHNC"})
	if err != nil {
		return err
	}
	for {
		price, err := st.Recv(ctx)
		if err != nil {
			_, err = fmt.Fprintln(out, "the stream ended:", kitexstream.Ending(st))
			return err
		}
		if _, err := fmt.Fprintln(out, "price:", price.GetCents()); err != nil {
			return err
		}
		if price.GetCents() == 102 {
			cancel(&streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user"), Message: "the user closed the tab"})
		}
	}
}
