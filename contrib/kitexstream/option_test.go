//go:build kitex016

package kitexstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/endpoint"
	"github.com/cloudwego/kitex/pkg/endpoint/cep"
	"github.com/cloudwego/kitex/pkg/endpoint/sep"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/transport"

	pb "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/grpc/prices"
	pbprices "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/grpc/prices/prices"
	thrift "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/ttstream/prices"
	thriftprices "github.com/whence-dev/whence/contrib/kitexstream/examples/gen/ttstream/prices/prices"
	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
)

// A counter counts how often options act, by their names.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(option string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[option]++
}

// take returns the counts so far and resets them.
func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = map[string]int{}
	return n
}

// A tracer calls start when a call starts.
type tracer struct{ start func() }

// Start implements stats.Tracer.
func (t tracer) Start(ctx context.Context) context.Context {
	t.start()
	return ctx
}

// Finish implements stats.Tracer.
func (tracer) Finish(context.Context) {}

// universal counts a middleware of unary and streaming calls.
func (c *counter) universal(option string) endpoint.Middleware {
	return func(next endpoint.Endpoint) endpoint.Endpoint {
		return func(ctx context.Context, req, resp any) error {
			c.add(option)
			return next(ctx, req, resp)
		}
	}
}

func (c *counter) unary(option string) endpoint.UnaryMiddleware {
	return func(next endpoint.UnaryEndpoint) endpoint.UnaryEndpoint {
		return func(ctx context.Context, req, resp any) error {
			c.add(option)
			return next(ctx, req, resp)
		}
	}
}

func (c *counter) server() []server.Option {
	return []server.Option{
		server.WithTracer(tracer{func() { c.add("server.WithTracer") }}),
		server.WithMiddleware(c.universal("server.WithMiddleware")),
		server.WithUnaryOptions(server.WithUnaryMiddleware(c.unary("server.WithUnaryMiddleware"))),
		server.WithStreamOptions(
			server.WithStreamMiddleware(func(next sep.StreamEndpoint) sep.StreamEndpoint {
				return func(ctx context.Context, st streaming.ServerStream) error {
					c.add("server.WithStreamMiddleware")
					return next(ctx, st)
				}
			}),
			server.WithStreamRecvMiddleware(func(next sep.StreamRecvEndpoint) sep.StreamRecvEndpoint {
				return func(ctx context.Context, st streaming.ServerStream, m any) error {
					c.add("server.WithStreamRecvMiddleware")
					return next(ctx, st, m)
				}
			}),
			server.WithStreamSendMiddleware(func(next sep.StreamSendEndpoint) sep.StreamSendEndpoint {
				return func(ctx context.Context, st streaming.ServerStream, m any) error {
					c.add("server.WithStreamSendMiddleware")
					return next(ctx, st, m)
				}
			}),
			server.WithStreamEventHandler(rpcinfo.ServerStreamEventHandler{
				HandleStreamStartEvent: func(context.Context, rpcinfo.RPCInfo, rpcinfo.StreamStartEvent) {
					c.add("server.WithStreamEventHandler")
				},
			}),
		),
	}
}

func (c *counter) client() []client.Option {
	return []client.Option{
		client.WithTracer(tracer{func() { c.add("client.WithTracer") }}),
		client.WithMiddleware(c.universal("client.WithMiddleware")),
		client.WithUnaryOptions(client.WithUnaryMiddleware(c.unary("client.WithUnaryMiddleware"))),
		client.WithStreamOptions(
			client.WithStreamMiddleware(func(next cep.StreamEndpoint) cep.StreamEndpoint {
				return func(ctx context.Context) (streaming.ClientStream, error) {
					c.add("client.WithStreamMiddleware")
					return next(ctx)
				}
			}),
			client.WithStreamRecvMiddleware(func(next cep.StreamRecvEndpoint) cep.StreamRecvEndpoint {
				return func(ctx context.Context, st streaming.ClientStream, m any) error {
					c.add("client.WithStreamRecvMiddleware")
					return next(ctx, st, m)
				}
			}),
			client.WithStreamSendMiddleware(func(next cep.StreamSendEndpoint) cep.StreamSendEndpoint {
				return func(ctx context.Context, st streaming.ClientStream, m any) error {
					c.add("client.WithStreamSendMiddleware")
					return next(ctx, st, m)
				}
			}),
			client.WithStreamEventHandler(rpcinfo.ClientStreamEventHandler{
				HandleStreamStartEvent: func(context.Context, rpcinfo.RPCInfo, rpcinfo.StreamStartEvent) {
					c.add("client.WithStreamEventHandler")
				},
			}),
		),
	}
}

// callGRPC calls Last and then Watch, and returns the counts of each call.
func callGRPC(t *testing.T, c *counter, addr string, options ...client.Option) (unary, stream map[string]int) {
	t.Helper()
	shop, err := pbprices.NewClient("next", append(options, client.WithHostPorts(addr), client.WithTransportProtocol(transport.GRPC))...)
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.KeepAlive(shop) // Kitex closes the connections of a client that is garbage
	if _, err := shop.Last(kitextest.Context(t), &pb.Symbol{}); err != nil {
		t.Fatal(err)
	}
	unary = c.take()
	st, err := shop.Watch(kitextest.Context(t), &pb.Symbol{})
	for err == nil {
		_, err = st.Recv(kitextest.Context(t))
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return unary, c.take()
}

// callThrift is callGRPC over TTHeader.
func callThrift(t *testing.T, c *counter, addr string, options ...client.Option) (unary, stream map[string]int) {
	t.Helper()
	shop, err := thriftprices.NewClient("next", append(options, client.WithHostPorts(addr), client.WithTransportProtocol(transport.TTHeader|transport.TTHeaderStreaming))...)
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.KeepAlive(shop) // Kitex closes the connections of a client that is garbage
	if _, err := shop.Last(kitextest.Context(t), &thrift.Symbol{}); err != nil {
		t.Fatal(err)
	}
	unary = c.take()
	st, err := shop.Watch(kitextest.Context(t), &thrift.Symbol{})
	for err == nil {
		_, err = st.Recv(kitextest.Context(t))
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return unary, c.take()
}

// TestWhichOptionActsOnWhat checks the table in docs/reference/kitexstream.md, with the suites beside all
// other options.
func TestWhichOptionActsOnWhat(t *testing.T) {
	c := &counter{n: map[string]int{}}
	counted := map[string][]string{} // by option: unary over TTHeader, unary over gRPC, stream over each
	for _, over := range []struct {
		binding
		call func(*testing.T, *counter, string, ...client.Option) (unary, stream map[string]int)
	}{{bindings[2], callThrift}, {bindings[0], callGRPC}} {
		at, caller := newHop(t, "leaf", nil), newHop(t, "root", nil)
		addr, stop := over.serveAt(t, at, func(_ context.Context, send func(int64) error) error { return send(1) }, c.server()...)
		unary, stream := over.call(t, c, addr, append(c.client(), watching(caller))...)
		stop()
		for option, act := range acts {
			counted[option] = append(counted[option], said(unary[option], act), said(stream[option], act))
		}
	}
	b, err := os.ReadFile("../../docs/reference/kitexstream.md")
	if err != nil {
		t.Fatal(err)
	}
	for option, n := range counted {
		if n[1] != n[3] {
			t.Errorf("%s acts on streams over TTHeader Streaming %q, and over gRPC %q", option, n[1], n[3])
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", option, n[0], n[2], n[1])
		if !strings.Contains(string(b), row+"\n") {
			t.Errorf("docs/reference/kitexstream.md lacks the row\n%s", row)
		}
	}
}

// acts has the text of the table for an option that acts.
var acts = map[string]string{
	"server.WithTracer": "the call", "client.WithTracer": "the call",
	"server.WithMiddleware": "the call", "client.WithMiddleware": "the call",
	"server.WithUnaryMiddleware": "the call", "client.WithUnaryMiddleware": "the call",
	"server.WithStreamMiddleware": "the call", "client.WithStreamMiddleware": "the call",
	"server.WithStreamRecvMiddleware": "each Recv", "client.WithStreamRecvMiddleware": "each Recv",
	"server.WithStreamSendMiddleware": "each Send", "client.WithStreamSendMiddleware": "each Send",
	"server.WithStreamEventHandler": "each event", "client.WithStreamEventHandler": "each event",
}

func said(n int, act string) string {
	if n == 0 {
		return "–"
	}
	return act
}
