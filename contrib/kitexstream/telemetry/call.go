package telemetry

import (
	"context"

	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// A Side is the end of a stream that this process has.
type Side string

// The sides.
const (
	Server Side = "server"
	Client Side = "client"
)

// Systems that carry streams, as rpc.system.name of spans and the label system of metrics.
const (
	GRPC     = "grpc"
	TTStream = "ttstream"
	SSE      = "sse"
)

// UnnamedPeer is the name in paths of a caller that did not say its own.
const UnnamedPeer = "client"

// A Method identifies the metrics of the streams of one method. All fields come from IDL files, routes and configuration.
type Method struct {
	Side   Side
	System string
	Name   string // "Service/Method", or a route
}

// A Call is what is known of a stream when it begins.
type Call struct {
	Method
	// Peer is the name of the caller on servers, and of the callee on clients.
	Peer string
	// Via is the hops that the call has crossed before this one, origin first.
	Via streamerr.Path
	// Parent is where the caller's trace says that the stream belongs.
	Parent streamtrace.Parent
	// Stopped returns why the caller has ended a server's stream, or nil while it has not. It is nil on clients.
	Stopped func() *streamerr.Error
}

type streamKey struct{}

// With returns a context for the handler of a server's stream. Calls that are made with the context, or with a context that
// wraps it, are a part of the stream's path and trace.
func With(ctx context.Context, s *Stream) context.Context {
	return s.trace.Context(context.WithValue(ctx, streamKey{}, s))
}

// From returns the server's stream that ctx belongs to, or nil.
func From(ctx context.Context) *Stream {
	s, _ := ctx.Value(streamKey{}).(*Stream)
	return s
}

// Cause returns why ctx is done, or nil while it is not. If the caller of the handler's stream has ended the stream, that is the
// cause with its reason and path, even if ctx was wrapped by context.WithCancel, context.WithTimeout and the like.
func Cause(ctx context.Context) *streamerr.Error {
	if ctx.Err() == nil {
		return nil
	}
	if s := From(ctx); s != nil {
		if cause := s.Stopped(); cause != nil {
			return cause
		}
	}
	return streamerr.FromContext(ctx)
}
