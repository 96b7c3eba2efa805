package kitexstream_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/cloudwego/kitex"
	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/client/streamclient"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/transport"

	"github.com/whence-dev/whence/contrib/kitexstream"
	before "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/before/prices"
	beforeprices "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/before/prices/prices"
	pb "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/grpc/prices"
	pbprices "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/grpc/prices/prices"
	thrift "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/ttstream/prices"
	thriftprices "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/ttstream/prices/prices"
	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
)

// A handler answers Watch.
type handler func(ctx context.Context, send func(cents int64) error) error

// A watch is the client's side of a stream of Watch.
type watch struct {
	recv func(context.Context) (cents int64, err error)
	st   interface{ Context() context.Context }
}

// A binding serves and calls Watch over one transport.
type binding struct {
	system string
	serve  func(ln net.Listener, h handler, options ...server.Option) server.Server
	dial   func(t *testing.T, addr string, options ...client.Option) func(context.Context) (watch, error)
}

var bindings = []binding{
	{monitor.GRPC, serveGRPC, dialGRPC},
	{"thrift over gRPC", serveBefore, dialBefore},
	{monitor.TTStream, serveThrift, dialThrift},
}

type grpcServer struct {
	pb.Prices
	handler
}

// Last implements pb.Prices.
func (grpcServer) Last(context.Context, *pb.Symbol) (*pb.Price, error) {
	return &pb.Price{Cents: 1}, nil
}

// Watch implements pb.Prices.
func (s grpcServer) Watch(ctx context.Context, _ *pb.Symbol, st pb.Prices_WatchServer) error {
	return s.handler(ctx, func(cents int64) error { return st.Send(ctx, &pb.Price{Cents: cents}) })
}

// Follow implements pb.Prices: a price for each symbol.
func (grpcServer) Follow(ctx context.Context, st pb.Prices_FollowServer) error {
	for n := int64(1); ; n++ {
		if _, err := st.Recv(ctx); err != nil {
			return nil //nolint:nilerr // the end
		}
		if err := st.Send(ctx, &pb.Price{Cents: n}); err != nil {
			return err
		}
	}
}

func serveGRPC(ln net.Listener, h handler, options ...server.Option) server.Server {
	return pbprices.NewServer(&grpcServer{handler: h}, append(options, server.WithListener(ln))...)
}

func dialGRPC(t *testing.T, addr string, options ...client.Option) func(context.Context) (watch, error) {
	t.Helper()
	c, err := pbprices.NewClient("next", append(options, client.WithHostPorts(addr), client.WithTransportProtocol(transport.GRPC))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(c) }) // Kitex closes the connections of a client that is garbage
	return func(ctx context.Context) (watch, error) {
		st, err := c.Watch(ctx, &pb.Symbol{Name: "WHNC"})
		if err != nil {
			return watch{}, err
		}
		return watch{func(ctx context.Context) (int64, error) {
			p, err := st.Recv(ctx)
			return p.GetCents(), err
		}, st}, nil
	}
}

type thriftServer struct {
	thrift.Prices
	handler
}

// Watch implements thrift.Prices.
func (s thriftServer) Watch(ctx context.Context, _ *thrift.Symbol, st thrift.Prices_WatchServer) error {
	return s.handler(ctx, func(cents int64) error { return st.Send(ctx, &thrift.Price{Cents: cents}) })
}

func serveThrift(ln net.Listener, h handler, options ...server.Option) server.Server {
	return thriftprices.NewServer(&thriftServer{handler: h}, append(options, server.WithListener(ln))...)
}

func dialThrift(t *testing.T, addr string, options ...client.Option) func(context.Context) (watch, error) {
	t.Helper()
	c, err := thriftprices.NewClient("next", append(options, client.WithHostPorts(addr), client.WithTransportProtocol(transport.TTHeaderStreaming))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(c) }) // Kitex closes the connections of a client that is garbage
	return func(ctx context.Context) (watch, error) {
		st, err := c.Watch(ctx, &thrift.Symbol{Name: "WHNC"})
		if err != nil {
			return watch{}, err
		}
		return watch{func(ctx context.Context) (int64, error) {
			p, err := st.Recv(ctx)
			return p.GetCents(), err
		}, st}, nil
	}
}

// A beforeServer has the interface of the code that Kitex generates without StreamX.
type beforeServer struct {
	before.Prices
	handler
}

// Watch implements before.Prices.
func (s beforeServer) Watch(_ *before.Symbol, st before.Prices_WatchServer) error {
	return s.handler(st.Context(), func(cents int64) error { return st.Send(&before.Price{Cents: cents}) })
}

func serveBefore(ln net.Listener, h handler, options ...server.Option) server.Server {
	return beforeprices.NewServer(&beforeServer{handler: h}, append(options, server.WithListener(ln))...)
}

// clientOptions makes options of a client a suite, for stream clients.
type clientOptions []client.Option

// Options implements client.Suite.
func (o clientOptions) Options() []client.Option { return o }

func dialBefore(t *testing.T, addr string, options ...client.Option) func(context.Context) (watch, error) {
	t.Helper()
	c, err := beforeprices.NewStreamClient("next", streamclient.WithSuite(append(clientOptions(options), client.WithHostPorts(addr)))) //nolint:staticcheck // the tested API
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(c) }) // Kitex closes the connections of a client that is garbage
	return func(ctx context.Context) (watch, error) {
		st, err := c.Watch(ctx, &before.Symbol{Name: "WHNC"})
		if err != nil {
			return watch{}, err
		}
		return watch{func(context.Context) (int64, error) {
			p, err := st.Recv()
			return p.GetCents(), err
		}, st}, nil
	}
}

// named gives a client a name in Kitex, which TTHeader Streaming adds to the path of a cancel.
func named(name string) client.Option {
	return client.WithClientBasicInfo(&rpcinfo.EndpointBasicInfo{ServiceName: name})
}

// watching returns the option of a client with the suite of a hop, and with Kitex's events if it has
// them.
func watching(h hop, options ...kitexstream.ClientOption) client.Option {
	return client.WithSuite(clientOptions(append(kitexstream.Client(h.Monitor, options...).Options(), eventHandlers...)))
}

// canceling returns the bindings whose callees learn that their caller has left.
func canceling() []binding {
	if kitex.Version < "v0.15" { // over TTHeader Streaming, Kitex sent no cancels
		return bindings[:2]
	}
	return bindings
}

// A hop has a monitor whose records a test reads.
type hop struct {
	*monitor.Monitor
	records *kitextest.Records
}

func newHop(t *testing.T, name string, change func(*monitor.Config)) hop {
	t.Helper()
	records := new(kitextest.Records)
	config := monitor.Config{Name: name, ErrorTexts: true, Exporter: records}
	if change != nil {
		change(&config)
	}
	h := hop{monitor.New(config), records}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.Close(ctx)
	})
	return h
}

// ended waits for the streams of a hop, closes its monitor and returns its records.
func (h hop) ended(t *testing.T) []*monitor.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), kitextest.Patience) // a handler may be about to return
	defer cancel()
	if err := h.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return h.records.All()
}

// serveAt serves h with the suite of a hop until the test ends, or stop is called.
func (b binding) serveAt(t *testing.T, at hop, h handler, options ...server.Option) (addr string, stop func()) {
	t.Helper()
	return b.servePlain(t, h, append(options, server.WithSuite(kitexstream.Server(at.Monitor)))...)
}

// servePlain serves h without the suite until the test ends, or stop is called.
func (b binding) servePlain(t *testing.T, h handler, options ...server.Option) (addr string, stop func()) {
	t.Helper()
	ln := kitextest.Listen(t)
	exit, done := make(chan error), make(chan error, 1)
	srv := b.serve(ln, h, append(options, server.WithExitWaitTime(50*time.Millisecond), server.WithExitSignal(func() <-chan error { return exit }))...)
	go func() { done <- srv.Run() }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			close(exit)
			<-done
		}
	}
	t.Cleanup(stop)
	return ln.Addr().String(), stop
}

// Last implements thrift.Prices.
func (thriftServer) Last(context.Context, *thrift.Symbol) (*thrift.Price, error) {
	return &thrift.Price{Cents: 1}, nil
}
