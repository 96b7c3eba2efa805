// Command kitexgrpc is an ordinary Kitex service over gRPC with the suites of package kitexstream.
// It prints the trace of its first broken stream.
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

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/klog"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/transport"

	"github.com/whence-dev/whence/contrib/kitexstream"
	pb "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/grpc/prices"
	"github.com/whence-dev/whence/contrib/kitexstream/examples/gen/grpc/prices/prices"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
)

type exchange struct{ pb.Prices }

// Watch sends three prices before its feed breaks.
func (exchange) Watch(ctx context.Context, _ *pb.Symbol, st pb.Prices_WatchServer) error {
	for n := int64(0); n < 3; n++ {
		if err := st.Send(ctx, &pb.Price{Cents: 100 + n}); err != nil {
			return err
		}
	}
	return errors.New("the feed broke")
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
	ctx := context.Background()
	served := monitor.New(monitor.Config{Name: "exchange", ErrorTexts: true, Exporter: ofExchange})
	called := monitor.New(monitor.Config{Name: "shop", ErrorTexts: true, Exporter: ofShop})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := prices.NewServer(&exchange{}, server.WithListener(ln), server.WithSuite(kitexstream.Server(served)))
	go func() { _ = srv.Run() }()
	shop, err := prices.NewClient("exchange", client.WithHostPorts(ln.Addr().String()),
		client.WithTransportProtocol(transport.GRPC), client.WithSuite(kitexstream.Client(called)))
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(shop) // Kitex closes the connections of a client that is garbage
	st, err := shop.Watch(ctx, &pb.Symbol{Name: "WHNC"})
	if err != nil {
		return err
	}
	for price, err := st.Recv(ctx); err == nil; price, err = st.Recv(ctx) {
		_, _ = fmt.Fprintln(out, "price:", price.GetCents())
	}
	_, _ = fmt.Fprintln(out, "the stream ended:", kitexstream.Ending(st))
	return errors.Join(called.Close(ctx), served.Close(ctx), srv.Stop())
}
