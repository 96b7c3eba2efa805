// Package kitexstream makes the streams of any Kitex service visible, over gRPC (protobuf and thrift) and over TTHeader Streaming:
// a suite for servers and one for clients tell a telemetry.Monitor each message, header, reset and trailer of every streaming
// method, and end each stream with a typed cause and a path. Handlers, clients and IDL stay as they are.
//
//	monitor := telemetry.New(telemetry.Config{Name: "checkout", Exporters: exporters})
//	server.WithSuite(kitexstream.Server(monitor))
//	client.WithSuite(kitexstream.Client(monitor))
//
// A call carries the hops before it (whence-via) and W3C's traceparent, as gRPC metadata and as Kitex's metainfo. A server's trailer
// carries the ending (whence-end-reason, whence-end-path), and a client that has no suite ignores it. What ends a stream from above
// is a reset: over TTHeader Streaming it carries the typed cause, even if the handler has wrapped its context; over gRPC it carries a
// code alone, and the caller's own span has the cause.
//
// Errors that handlers and clients see are those of Kitex, unchanged: Ending and telemetry.Cause return what they mean. Unary
// methods are left to Kitex's tracers.
package kitexstream

import (
	"context"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/transport"

	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Server returns the suite of a server. One monitor may have any number of servers and clients.
func Server(r *telemetry.Monitor) server.Suite { return serverSuite{r} }

// Client returns the suite of a client.
func Client(r *telemetry.Monitor) client.Suite { return clientSuite{r} }

type serverSuite struct{ monitor *telemetry.Monitor }

// Options implements server.Suite.
func (s serverSuite) Options() []server.Option {
	return []server.Option{server.WithStreamOptions(server.WithStreamMiddleware(s.middleware))}
}

type clientSuite struct{ monitor *telemetry.Monitor }

// Options implements client.Suite.
func (s clientSuite) Options() []client.Option {
	return []client.Option{client.WithStreamOptions(
		client.WithStreamMiddleware(s.middleware),
		client.WithStreamEventHandler(events),
	)}
}

// Ending returns how a client's stream ended, with the path up to this service, or nil while it runs. st is what the generated
// client returned.
func Ending(st interface{ Context() context.Context }) *streamerr.Error {
	call, ok := st.Context().Value(callKey{}).(*clientCall)
	if !ok {
		return nil
	}
	return call.stream.Ending()
}

// streaming reports whether a call is one of a streaming method.
func streaming(ri rpcinfo.RPCInfo) bool {
	mode := ri.Invocation().StreamingMode()
	return mode != serviceinfo.StreamingNone && mode != serviceinfo.StreamingUnary
}

// method identifies the method of a call.
func method(side telemetry.Side, ri rpcinfo.RPCInfo) telemetry.Method {
	call, over := ri.Invocation(), system(ri)
	name := call.ServiceName() + "/" + call.MethodName()
	if pkg := call.PackageName(); pkg != "" && over == telemetry.GRPC { // servers of TTHeader Streaming are not told the package
		name = pkg + "." + name
	}
	return telemetry.Method{Side: side, System: over, Name: name}
}

func system(ri rpcinfo.RPCInfo) string {
	if ri.Config().TransportProtocol()&transport.TTHeaderStreaming != 0 {
		return telemetry.TTStream
	}
	return telemetry.GRPC
}
