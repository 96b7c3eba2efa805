// Package kitexstream measures and traces the streams of any Kitex service, over gRPC (protobuf and
// thrift) and over TTHeader Streaming. A suite for servers and a suite for clients record each
// message, header, reset and trailer of every streaming method in a monitor.Monitor, and give
// each ending a typed cause and a path. Handlers, clients and IDL do not change.
//
//	m := monitor.New(monitor.Config{Name: "checkout", Exporter: monitor.Text(os.Stderr)})
//	server.WithSuite(kitexstream.Server(m))
//	client.WithSuite(kitexstream.Client(m))
//
// A call carries its path (whence-via) and the place in the trace (whence-traceparent) to the next
// hop and no further: as metadata over gRPC, as transient metainfo over TTHeader Streaming. A
// server's trailer carries the ending (whence-end-reason, whence-end-path). Peers without a suite
// ignore these headers.
//
// Handlers and clients receive Kitex's errors unchanged; Ending and monitor.Cause return the
// typed cause beside them. The spans of the application's own tracer do not change either.
// ForwardCauses is the only option that changes an error: it sends the cause of a cancel over
// TTHeader Streaming. Unary methods are left to Kitex's tracers.
package kitexstream

import (
	"context"
	"sync/atomic"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/transport"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// Server returns the suite of a server. Any number of servers and clients may share a monitor.
// Kitex keeps a shutdown hook for each suite until the process ends.
func Server(r *monitor.Monitor) server.Suite {
	s := serverSuite{r, new(atomic.Bool), &connections{open: map[string]int{}}}
	draining := s.draining
	server.RegisterShutdownHook(func() { draining.Store(true) })
	return s
}

// Client returns the suite of a client.
func Client(r *monitor.Monitor, options ...ClientOption) client.Suite {
	s := clientSuite{monitor: r}
	for _, option := range options {
		option(&s)
	}
	return s
}

// A ClientOption changes the suite of a client.
type ClientOption func(*clientSuite)

// ForwardCauses sends the cause of a canceled context to the callee over TTHeader Streaming: a
// *streamerr.Error that the application canceled with, and the cause of the handler's own caller
// even if the handler wrapped its context. The callee then reports the cause and the whole path.
// Send and Recv of the canceled stream return the cause as Kitex's exception 12011; without the
// option they return 12007 or 12015. Other causes, and their texts, stay in the process.
func ForwardCauses() ClientOption {
	return func(s *clientSuite) { s.forward = true }
}

type serverSuite struct {
	monitor *monitor.Monitor
	// draining is set when a Kitex server of the process shuts down: Kitex's hooks do not tell
	// which.
	draining *atomic.Bool
	conns    *connections
}

// Options implements server.Suite.
func (s serverSuite) Options() []server.Option {
	return []server.Option{server.WithBoundHandler(s.conns), server.WithStreamOptions(server.WithStreamMiddleware(s.middleware))}
}

type clientSuite struct {
	monitor *monitor.Monitor
	forward bool // ForwardCauses
}

// Options implements client.Suite.
func (s clientSuite) Options() []client.Option {
	return []client.Option{client.WithStreamOptions(client.WithStreamMiddleware(s.middleware))}
}

// Ending returns how a client's stream ended, with the path up to this service, or nil while the
// stream is live. st is a stream of the generated client.
func Ending(st interface{ Context() context.Context }) *streamerr.Error {
	call, ok := st.Context().Value(callKey{}).(*clientCall)
	if !ok {
		return nil
	}
	return call.stream.Ending()
}

// streaming reports whether a call has a streaming method.
func streaming(ri rpcinfo.RPCInfo) bool {
	mode := ri.Invocation().StreamingMode()
	return mode != serviceinfo.StreamingNone && mode != serviceinfo.StreamingUnary
}

// method identifies the method of a call.
func method(side monitor.Side, ri rpcinfo.RPCInfo) monitor.Method {
	call, over := ri.Invocation(), system(ri)
	name := call.ServiceName() + "/" + call.MethodName()
	if pkg := call.PackageName(); pkg != "" && over == monitor.GRPC { // TTHeader Streaming does not send the package
		name = pkg + "." + name
	}
	return monitor.Method{Side: side, System: over, Name: name}
}

func system(ri rpcinfo.RPCInfo) string {
	if ri.Config().TransportProtocol()&transport.TTHeaderStreaming != 0 {
		return monitor.TTStream
	}
	return monitor.GRPC
}
