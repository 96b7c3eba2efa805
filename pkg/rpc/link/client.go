package link

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/rpc/callctx"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/rpc/unarycall"
	"github.com/whence-dev/whence/pkg/stream"
)

// A ClientConn calls the services of a Server over a few connections, which it opens when they are
// needed. A stream stays on its connection. Stubs generated for grpc-go accept a ClientConn.
//
// A ClientConn opens another connection when each of its connections has streamsPerLink streams, up
// to Options.Links connections: streams that share a connection share its reads and writes.
type ClientConn struct {
	target  string
	opts    Options
	expects string        // the identity of the process at target; empty for any process
	gone    chan struct{} // capacity 1: the last connection has ended

	alive context.Context //nolint:containedctx // parent of the attempts to connect; Close cancels it
	stop  context.CancelFunc

	mu      sync.Mutex // guards the following fields
	conns   []*mux.Conn
	dialing chan struct{} // closed when the attempt to connect is over; nil if there is no attempt
	failed  error         // of the last attempt
	closed  bool

	owned sync.WaitGroup // the goroutines that open and close connections
}

var _ grpc.ClientConnInterface = (*ClientConn)(nil)

// When each connection has streamsPerLink streams, another connection is opened.
const streamsPerLink = 256

// dialTimeout bounds an attempt to connect, including the exchange of HELLOs.
const dialTimeout = 5 * time.Second

// NewClient returns a ClientConn for the Server at target, a host:port. It does not connect.
func NewClient(target string, o Options) *ClientConn {
	o = o.withDefaults()
	cc := &ClientConn{target: target, opts: o, gone: make(chan struct{}, 1)}
	cc.alive, cc.stop = context.WithCancel(context.Background())
	return cc
}

// Close ends the connections and cancels an attempt to connect. It returns when these have ended.
// Streams that still run end with UNAVAILABLE.
func (cc *ClientConn) Close() error {
	cc.stop()
	cc.mu.Lock()
	cc.closed = true
	conns := cc.conns
	cc.conns = nil
	cc.mu.Unlock()
	for _, c := range conns {
		c.Close(mux.ErrClosed)
	}
	cc.owned.Wait()
	return nil
}

// Invoke implements grpc.ClientConnInterface. It supports the call options Header and Trailer only.
func (cc *ClientConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return unarycall.Invoke(ctx, cc, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface. It ignores call options. If there is no
// connection, NewStream waits for one. The OPEN is sent with the first message, or at the latest by
// the first RecvMsg.
func (cc *ClientConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	for {
		c, err := cc.connected(ctx)
		if err != nil {
			return nil, err
		}
		if st, ok, err := cc.begin(ctx, c, method); ok {
			return st, err
		}
	}
}

// begin opens a stream on c. It returns false if c accepts no more streams.
func (cc *ClientConn) begin(ctx context.Context, c *mux.Conn, method string) (grpc.ClientStream, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, true, status.FromContextError(err).Err()
	}
	call := frame.Call{Method: method}
	if at, ok := ctx.Deadline(); ok {
		call.Timeout = max(time.Until(at), time.Microsecond)
	}
	call.Headers = callctx.Outgoing(ctx)
	s, ok, err := c.Open(call)
	if !ok || err != nil {
		return nil, ok, err
	}
	st := &clientStream{ctx: ctx, s: s}
	st.unhook = loop.AfterCancel(ctx, func() { s.Cancel(status.FromContextError(ctx.Err()).Err()) })
	return st, true, nil
}

var _ loop.Source = (*clientStream)(nil)

// A clientStream is the caller's end of a stream.
type clientStream struct {
	ctx    context.Context //nolint:containedctx // a gRPC stream has a context
	s      *mux.Stream
	unhook func() bool

	// Owned by the reader.
	flushed bool        // the OPEN has been sent, or will be
	over    bool        // RecvMsg has returned the end of the call
	failed  error       // of a message that cannot be decoded
	trailer metadata.MD // from the callee; nil until Trailer is called
}

// Context implements grpc.ClientStream.
func (st *clientStream) Context() context.Context { return st.ctx }

// Header implements grpc.ClientStream. Answers on links have no headers.
func (st *clientStream) Header() (metadata.MD, error) { return nil, nil }

// Trailer implements grpc.ClientStream. It returns the same map each time.
func (st *clientStream) Trailer() metadata.MD {
	if st.over && st.trailer == nil {
		st.trailer = st.s.Trailer()
	}
	return st.trailer
}

// CloseSend implements grpc.ClientStream.
func (st *clientStream) CloseSend() error {
	st.s.CloseSend()
	return nil
}

// SendMsg implements grpc.ClientStream. It returns io.EOF when the call is over, and RecvMsg
// returns the reason.
func (st *clientStream) SendMsg(m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	err := st.s.Send(nil, msg)
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case status.Code(err) == codes.Unavailable: // the connection broke
		return io.EOF
	default:
		st.s.Cancel(err) // as in grpc-go, a message that cannot be sent ends the call
		return err
	}
}

// SendLast implements loop.Source.
func (st *clientStream) SendLast(m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	return st.s.SendLast(msg)
}

// RecvMsg implements grpc.ClientStream.
func (st *clientStream) RecvMsg(m any) error {
	st.flush()
	return st.received(st.s.Recv(m, codes.Internal))
}

// Attend implements loop.Source.
func (st *clientStream) Attend(fresh func() any, take func(on *stream.Loop, m any) bool, ended func(err error)) {
	st.flush()
	st.s.Attend(prefetch.With(st.ctx, prefetch.Of(st), prefetch.Func(take)), fresh, func(on *stream.Loop, m any, err error) bool {
		st.failed = err
		return err == nil && take(on, m)
	}, func(err error) {
		ended(st.received(cmp.Or(st.failed, err)))
	}, codes.Internal)
}

// flush sends the OPEN of a call that has not sent a message.
func (st *clientStream) flush() {
	if !st.flushed {
		st.flushed = true
		st.s.Conn().Flush()
	}
}

// received records the end of the call if err is not nil. As in grpc-go, a message that cannot be
// decoded ends the call, with a RESET to the callee. If the callee has ended the call, no RESET is
// sent.
func (st *clientStream) received(err error) error {
	if err != nil {
		st.over = true
		st.unhook()
		st.s.Cancel(err)
	}
	return err
}

// More reports whether RecvMsg would return at once. Only the goroutine that calls RecvMsg may call
// it.
func (st *clientStream) More() bool { return st.s.More() }
