// Command kitexgrpc is an ordinary Kitex service over gRPC with the suites of package kitexstream.
// It prints the trace of its first broken stream.
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

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/klog"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/transport"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	pb "github.com/whence-dev/whence/idl/gen/example/grpc/prices"
	"github.com/whence-dev/whence/idl/gen/example/grpc/prices/prices"
)

type exchange struct{ pb.Prices }

// Watch sends three prices before its feed breaks.
func (exchange) Watch(ctx context.Context, _ *pb.Symbol, st pb.Prices_WatchServer) error {
	for n := range int64(3) {
		if err := st.Send(ctx, &pb.Price{Cents: 100 + n}); err != nil {
			return err
		}
	}
	return errors.New("the feed broke")
}

func main() {
	klog.SetOutput(io.Discard)
	if err := run(os.Stdout, telemetry.Text(os.Stdout)); err != nil {
		log.Fatal(err)
	}
}

// run serves prices, watches them as a shop, and exports the spans of both.
func run(out io.Writer, spans sdktrace.SpanExporter) error {
	ctx := context.Background()
	served := telemetry.New(telemetry.Config{Name: "exchange", ErrorTexts: true, Exporters: []sdktrace.SpanExporter{spans}})
	called := telemetry.New(telemetry.Config{Name: "shop", ErrorTexts: true, Exporters: []sdktrace.SpanExporter{spans}})
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
