// Command kitexttstream is an ordinary Kitex service over TTHeader Streaming with the suites of
// package kitexstream. It prints the trace of a stream whose user leaves.
package main

import (
	"bytes"
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

	"github.com/whence-dev/whence/contrib/kitexstream"
	thrift "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/ttstream/prices"
	"github.com/whence-dev/whence/contrib/kitexstream/examples/gen/ttstream/prices/prices"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

type exchange struct{ thrift.Prices }

// Watch sends three prices and waits for more. Once the context is wrapped, Kitex itself no longer
// knows who ended the stream.
func (exchange) Watch(ctx context.Context, _ *thrift.Symbol, st thrift.Prices_WatchServer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for n := int64(0); n < 3; n++ {
		if err := st.Send(ctx, &thrift.Price{Cents: 100 + n}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return monitor.Cause(ctx)
}

func main() {
	klog.SetOutput(io.Discard)
	if err := show(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// show runs the example, and then prints the records of its hops.
func show(out io.Writer) error {
	var shop, exchange bytes.Buffer
	err := run(out, monitor.Text(&shop), monitor.Text(&exchange))
	_, _ = io.Copy(out, io.MultiReader(&shop, &exchange))
	return err
}

// run serves prices, watches them as a shop, and exports the records of both.
func run(out io.Writer, ofShop, ofExchange monitor.Exporter) error {
	ctx, leave := context.WithCancelCause(context.Background())
	defer leave(nil)
	served := monitor.New(monitor.Config{Name: "exchange", ErrorTexts: true, Exporter: ofExchange})
	called := monitor.New(monitor.Config{Name: "shop", ErrorTexts: true, Exporter: ofShop})
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
