// Command kitexttstream is an ordinary Kitex service over TTHeader Streaming with the suites of
// package kitexstream. It prints the trace of a stream whose user leaves.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"runtime"
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

type exchange struct{ thrift.Prices }

// Watch sends three prices and waits for more. Once the context is wrapped, Kitex itself no longer
// knows who ended the stream.
func (exchange) Watch(ctx context.Context, _ *thrift.Symbol, st thrift.Prices_WatchServer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for n := range int64(3) {
		if err := st.Send(ctx, &thrift.Price{Cents: 100 + n}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return telemetry.Cause(ctx)
}

func main() {
	klog.SetOutput(io.Discard)
	if err := run(os.Stdout, telemetry.Text(os.Stdout)); err != nil {
		log.Fatal(err)
	}
}

// run serves prices, watches them as a shop, and exports the spans of both.
func run(out io.Writer, spans sdktrace.SpanExporter) error {
	ctx, leave := context.WithCancelCause(context.Background())
	defer leave(nil)
	served := telemetry.New(telemetry.Config{Name: "exchange", ErrorTexts: true, Exporters: []sdktrace.SpanExporter{spans}})
	called := telemetry.New(telemetry.Config{Name: "shop", ErrorTexts: true, Exporters: []sdktrace.SpanExporter{spans}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := prices.NewServer(&exchange{}, server.WithListener(ln), server.WithSuite(kitexstream.Server(served)), server.WithExitWaitTime(time.Millisecond))
	go func() { _ = srv.Run() }()
	defer func() { _ = srv.Stop() }() // the error says that the client is still connected
	shop, err := prices.NewClient("exchange", client.WithHostPorts(ln.Addr().String()),
		client.WithTransportProtocol(transport.TTHeaderStreaming), client.WithSuite(kitexstream.Client(called, kitexstream.ForwardCauses())))
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(shop) // Kitex closes the connections of a client that is garbage
	st, err := shop.Watch(ctx, &thrift.Symbol{Name: "WHNC"})
	if err != nil {
		return err
	}
	for price, err := st.Recv(ctx); err == nil; price, err = st.Recv(ctx) {
		_, _ = fmt.Fprintln(out, "price:", price.GetCents())
		if price.GetCents() == 102 {
			leave(&streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user"), Message: "the user closed the tab"})
		}
	}
	_, _ = fmt.Fprintln(out, "the stream ended:", kitexstream.Ending(st))
	ctx = context.Background()
	return errors.Join(called.Close(ctx), served.Close(ctx))
}
