// Package serverstream carries a stream.Engine over a server-streaming method without changes to
// the method's messages, which have no room for a Stop or an ending. A stop travels with its cause
// beside the stream, through the unary method whence.stream.v1.StreamControl/Stop. The ending is in
// the status and the trailers. The stream's id is in the request metadata whence-stream-id, unless
// the request has a field for it.
//
// A client or server that does not use this package sees the method unchanged.
package serverstream

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
)

// IDHeader is the request metadata with the stream's id, by which a Stop names the stream.
const IDHeader = "whence-stream-id"

// A Method describes a server-streaming method, as for rpc.Serve and rpc.Dial. Its fields Open,
// Opened, Stop, Stopped and Inbox are not used, because the message of the call is the request.
// Every field may be nil, and so may the Method.
type Method[In, Out any] = rpc.Method[*In, In, Out]

// Serve answers one call of a server-streaming method with engine, and returns the result of the
// handler: nil for a stream that has completed, otherwise a status with reason and path.
// RegisterControl makes the stream stoppable with a cause. A call that is reset stops the stream
// with PEER_RESET.
func Serve[In, Out any](h *rpc.Hop, in *In, st grpc.ServerStreamingServer[Out], m *Method[In, Out], engine stream.Engine[*In, *Out]) error {
	md, _ := metadata.FromIncomingContext(st.Context())
	first := &request[In]{in: in}
	if ids := md.Get(IDHeader); len(ids) == 1 {
		first.id = ids[0]
	}
	return rpc.Serve(h, &server[In, Out]{ServerStreamingServer: st, first: first}, framed(m), unwrapped(engine))
}

// Dial returns the engine behind a server-streaming method of a peer. open starts a call, such as
// healthpb.NewHealthClient(cc).Watch. self and peer are the names of this hop and of the peer's.
// When the stream is stopped, tell, such as Tell(cc), sends the peer the cause and the path so far,
// and the peer has the grace to end the stream. If the Stop cannot be sent, the call is reset.
func Dial[In, Out any](self, peer string, open func(context.Context, *In, ...grpc.CallOption) (grpc.ServerStreamingClient[Out], error), tell rpc.Teller, m *Method[In, Out]) stream.Engine[*In, *Out] {
	frames := framed(m)
	start := func(ctx context.Context, opts ...grpc.CallOption) (grpc.BidiStreamingClient[frame[In], Out], error) {
		ctx, reset := context.WithCancel(ctx)
		return &client[In, Out]{
			ctx: ctx, reset: reset, over: make(chan struct{}), tell: tell,
			open: func(ctx context.Context, in *In) (grpc.ServerStreamingClient[Out], error) {
				return open(ctx, in, opts...)
			},
			name: func(r *request[In]) (id, owner string) { return *frames.ID(r), frames.Owner(r) },
		}, nil
	}
	engine := rpc.Dial(self, peer, start, frames)
	return func(ctx context.Context, in *In, to stream.Reader[*Out]) {
		first := &request[In]{in: in, id: stream.ID(ctx)}
		if id := frames.ID(first); *id == "" {
			*id = stream.NewID()
		}
		engine(ctx, first, to)
	}
}

// RegisterControl registers whence.stream.v1.StreamControl, which stops the live streams of h.
func RegisterControl(s grpc.ServiceRegistrar, h *rpc.Hop) {
	streamv1.RegisterStreamControlServer(s, &control{hop: h})
}

// Tell returns the Teller for a peer whose server has used RegisterControl.
func Tell(cc grpc.ClientConnInterface) rpc.Teller {
	peer := streamv1.NewStreamControlClient(cc)
	return func(ctx context.Context, stop *streamv1.StopStreamRequest) error {
		_, err := peer.Stop(ctx, &streamv1.StopRequest{Stream: stop})
		return err
	}
}

type control struct {
	streamv1.UnimplementedStreamControlServer
	hop *rpc.Hop
}

// Stop implements streamv1.StreamControlServer.
func (c *control) Stop(ctx context.Context, req *streamv1.StopRequest) (*streamv1.StopResponse, error) {
	resp, err := c.hop.Stop(ctx, req.GetStream())
	if err != nil {
		return nil, err
	}
	return &streamv1.StopResponse{Stream: resp}, nil
}

// A request is the message of a call, and the stream's id if the message has none.
type request[In any] struct {
	in *In
	id string
}

// A frame is a message of the bidi call that the package emulates: the request, or a Stop.
type frame[In any] struct {
	first *request[In]
	stop  *streamv1.Stop
}

// framed converts a method of messages to a method of frames.
func framed[In, Out any](m *Method[In, Out]) *rpc.Method[*request[In], frame[In], Out] {
	if m == nil {
		m = &Method[In, Out]{}
	}
	return &rpc.Method[*request[In], frame[In], Out]{
		Operation: m.Operation,
		Open:      func(r *request[In]) *frame[In] { return &frame[In]{first: r} },
		Opened:    func(f *frame[In]) (*request[In], bool) { return f.first, f.first != nil },
		Stop:      func(stop *streamv1.Stop) *frame[In] { return &frame[In]{stop: stop} },
		Stopped:   func(f *frame[In]) (*streamv1.Stop, bool) { return f.stop, f.stop != nil },
		ID: func(r *request[In]) *string {
			if m.ID != nil {
				if id := m.ID(r.in); id != nil {
					return id
				}
			}
			return &r.id
		},
		Owner: func(r *request[In]) string {
			if m.Owner == nil {
				return ""
			}
			return m.Owner(r.in)
		},
		Started: m.Started, Tokens: m.Tokens, End: m.End,
	}
}

// unwrapped converts an engine of messages to an engine of requests.
func unwrapped[In, Out any](engine stream.Engine[*In, *Out]) stream.Engine[*request[In], *Out] {
	return func(ctx context.Context, r *request[In], to stream.Reader[*Out]) { engine(ctx, r.in, to) }
}

// A server presents the call of a server-streaming method as a bidi call whose caller half-closes
// after its request.
type server[In, Out any] struct {
	grpc.ServerStreamingServer[Out]
	first *request[In] // nil after it was received
}

// Recv implements grpc.BidiStreamingServer.
func (s *server[In, Out]) Recv() (*frame[In], error) {
	if s.first == nil {
		return nil, io.EOF
	}
	f := &frame[In]{first: s.first}
	s.first = nil
	return f, nil
}
