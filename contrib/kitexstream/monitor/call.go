package monitor

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// A Side is this process's end of a stream.
type Side string

// The two sides.
const (
	Server Side = "server"
	Client Side = "client"
)

// Transports of streams, as rpc.system.name of spans and the label system of metrics.
const (
	GRPC     = "grpc"
	TTStream = "ttstream"
	SSE      = "sse"
)

// UnnamedPeer is the name in paths of a caller that did not send its own.
const UnnamedPeer = "client"

// A Method identifies the metrics of the streams of one method. All fields come from IDL files,
// routes and configuration.
type Method struct {
	Side   Side
	System string
	Name   string // "Service/Method", or a route
}

// A Call describes a stream at its beginning.
type Call struct {
	Method
	// Peer is the name of the caller on servers, and of the callee on clients.
	Peer string
	// Via is the path of the call up to the caller, origin first.
	Via streamerr.Path
	// Parent is the caller's place in its trace.
	Parent Parent
	// Stopped returns why the handler's context ended, or nil while it is live. It is nil on
	// clients.
	Stopped func() *streamerr.Error
}

type streamKey struct{}

// With returns a context for the handler of a server's stream. Calls with that context, or with a
// context that wraps it, continue the path and the trace of the stream. With adds no span to the
// context: the application's tracer decides about its own spans.
func With(ctx context.Context, s *Stream) context.Context {
	return context.WithValue(ctx, streamKey{}, s)
}

// From returns the server's stream that ctx belongs to, or nil.
func From(ctx context.Context) *Stream {
	s, _ := ctx.Value(streamKey{}).(*Stream)
	return s
}

// Cause returns why ctx is done, or nil while ctx is live. If the caller ended the handler's
// stream, Cause returns the caller's reason and path, even if the handler wrapped its context with
// context.WithCancel, context.WithTimeout and the like. If ctx ended because the handler returned,
// the origin is this hop.
func Cause(ctx context.Context) *streamerr.Error {
	if ctx.Err() == nil {
		return nil
	}
	own := streamerr.FromContext(ctx)
	s := From(ctx)
	if s == nil || detached(ctx) {
		return own
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.DeadlineExceeded):
		if why := s.Stopped(); why != nil && why.Reason == streamerr.Deadline {
			return why
		}
		return own // a timeout of the handler
	case cause != context.Canceled && cause != ctx.Err(): //nolint:errorlint // a bare cancel, not a cause that wraps one
		return own // the handler canceled ctx with this cause
	}
	if why := s.Stopped(); why != nil {
		return why
	}
	if s.Ending() != nil {
		return errReturned
	}
	return own
}

// errReturned ends a call whose handler did not read the call to its end.
var errReturned = streamerr.New(streamerr.PeerReset, "the handler that made the call returned before the call ended")

// A link connects a call with the handler that made it.
type link struct{ detached atomic.Bool }

type linkKey struct{}

// Link returns a context for a call of a handler, and release, which the caller of Link calls when
// the call ends. Link watches whether the context outlives the handler's, as after
// context.WithoutCancel: Cause then ignores the end of the handler's context.
func Link(ctx context.Context) (linked context.Context, release func() bool) {
	s := From(ctx)
	if s == nil {
		return ctx, func() bool { return true }
	}
	l := &link{}
	release = context.AfterFunc(s.base, func() {
		_ = context.Cause(s.base) // returns when the cancel of base has reached all contexts that are derived from base
		if ctx.Err() == nil {
			l.detached.Store(true)
		}
	})
	return context.WithValue(ctx, linkKey{}, l), release
}

func detached(ctx context.Context) bool {
	l, ok := ctx.Value(linkKey{}).(*link)
	return ok && l.detached.Load()
}
