package inprocess

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/rpc/direct"
	"github.com/whence-dev/whence/pkg/rpc/unarycall"
)

// A Conn lets generated stubs call the services of a Server.
type Conn struct{ server *Server }

var _ grpc.ClientConnInterface = (*Conn)(nil)

// Conn returns a connection to s.
func (s *Server) Conn() *Conn { return &Conn{s} }

// Close does nothing, because a Conn holds no resources. It exists for callers that close
// connections.
func (*Conn) Close() error { return nil }

// Invoke implements grpc.ClientConnInterface. It supports the call options Header and Trailer only.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return unarycall.Invoke(ctx, c, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface. It ignores call options.
func (c *Conn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	h, ok := c.server.handlers[method]
	switch {
	case !ok:
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case !c.server.begin():
		return nil, errStopped
	}
	cl := newCall(ctx, c.server.base, method)
	go func() { // Stop waits for it
		defer c.server.calls.Done()
		defer cl.end(errExited) // takes effect only if the handler has exited its goroutine
		cl.end(h(serverStream{cl}))
	}()
	return clientStream{cl}, nil
}

var (
	errStopped = status.Error(codes.Unavailable, "the server in this process has stopped")
	errExited  = status.Error(codes.Internal, "the handler has exited")
)

// newCall returns a call of a caller with ctx. Of ctx's values, only the outgoing metadata reaches
// the callee, as over a network, and the list of objects to prefetch.
func newCall(ctx, base context.Context, method string) *call {
	c := &call{
		ctx: ctx, base: base, requests: make(chan proto.Message, 1), answers: make(chan proto.Message),
		halfClosed: make(chan struct{}), headed: make(chan struct{}), over: make(chan struct{}),
	}
	callee, cancel := context.WithCancel(prefetch.Carry(ctx, base))
	deadline := func() {}
	if at, ok := ctx.Deadline(); ok {
		callee, deadline = context.WithDeadline(callee, at)
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	callee = metadata.NewIncomingContext(callee, md.Copy())
	callee = peer.NewContext(callee, &peer.Peer{Addr: Addr{}})
	callee = grpc.NewContextWithServerTransportStream(callee, transportStream{c, method})
	c.callee, c.meeting = direct.Carry(ctx, callee)
	undo := context.AfterFunc(ctx, cancel)
	c.free = func() { undo(); deadline(); cancel() }
	return c
}

// An Addr is the address of a caller in this process.
type Addr struct{}

// Network is the network name of calls within a process.
const Network = "inprocess"

// Network implements net.Addr.
func (Addr) Network() string { return Network }

// String implements net.Addr.
func (Addr) String() string { return "in process" }
