package inprocess

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/whence-dev/whence/pkg/rpc/direct"
)

// A call is the state that its two ends share.
type call struct {
	// Static.
	ctx     context.Context //nolint:containedctx // the caller's
	callee  context.Context //nolint:containedctx // the handler's; done when the call is over
	base    context.Context //nolint:containedctx // done when the server has stopped
	meeting direct.Joint    // joins rpc.Dial and rpc.Serve
	free    func()          // ends callee

	requests   chan proto.Message // from the caller; capacity 1, then SendMsg blocks
	answers    chan proto.Message // from the callee; SendMsg waits for RecvMsg
	closing    sync.Once
	halfClosed chan struct{} // closed by the caller's CloseSend

	ending  sync.Once
	over    chan struct{} // closed when the handler has returned
	failure error         // the handler's status; nil is OK. Set before over is closed

	mu      sync.Mutex // guards the following fields
	header  metadata.MD
	heading bool          // header was sent
	headed  chan struct{} // closed when header was sent
	trailer metadata.MD
}

// end ends the call with the handler's error, once.
func (c *call) end(err error) {
	c.ending.Do(func() {
		if err != nil {
			st, ok := status.FromError(err)
			if !ok {
				st = status.FromContextError(err)
			}
			c.failure = st.Err()
		}
		close(c.over)
		c.free()
		c.meeting.Over()
	})
}

// status returns what the caller reads after the last message.
func (c *call) status() error {
	if c.failure != nil {
		return c.failure
	}
	return io.EOF
}

// copied returns a copy of a message for the other end, because the sender may reuse the message.
func copied(m any) (proto.Message, error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	return proto.Clone(msg), nil
}

// move moves the content of from, which copied has made, into m.
func move(m any, from proto.Message) error {
	to, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	dst, src := to.ProtoReflect(), from.ProtoReflect()
	if dst.Descriptor() != src.Descriptor() {
		return status.Errorf(codes.Internal, "a %s cannot be received as a %s", src.Descriptor().FullName(), dst.Descriptor().FullName())
	}
	proto.Reset(to)
	src.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		dst.Set(field, value)
		return true
	})
	dst.SetUnknown(src.GetUnknown())
	return nil
}

// A clientStream is the caller's end.
type clientStream struct{ *call }

var _ grpc.ClientStream = clientStream{}

func (s clientStream) Context() context.Context { return s.ctx }

func (s clientStream) SendMsg(m any) error {
	msg, err := copied(m)
	if err != nil {
		return err
	}
	select {
	case <-s.halfClosed:
		return status.Error(codes.Internal, "SendMsg was called after CloseSend")
	default:
	}
	select {
	case s.requests <- msg:
		return nil
	case <-s.over:
	case <-s.ctx.Done():
	case <-s.base.Done():
	}
	return io.EOF // RecvMsg returns the reason
}

func (s clientStream) CloseSend() error {
	s.closing.Do(func() { close(s.halfClosed) })
	return nil
}

func (s clientStream) RecvMsg(m any) error {
	select {
	case msg := <-s.answers:
		return move(m, msg)
	case <-s.over:
		return s.status()
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	case <-s.base.Done():
		select {
		case <-s.over:
			return s.status()
		default:
			return errStopped
		}
	}
}

func (s clientStream) Header() (metadata.MD, error) {
	select {
	case <-s.headed:
	case <-s.over:
	case <-s.ctx.Done():
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header, nil
}

func (s clientStream) Trailer() metadata.MD {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trailer
}

// A serverStream is the callee's end.
type serverStream struct{ *call }

var _ grpc.ServerStream = serverStream{}

func (s serverStream) Context() context.Context { return s.callee }

// SendMsg waits until the caller has received the message, or the call is over.
func (s serverStream) SendMsg(m any) error {
	s.meeting.Sends()
	msg, err := copied(m)
	if err != nil {
		return err
	}
	_ = s.SendHeader(nil) // fails if the header was sent before
	select {
	case s.answers <- msg:
		return nil
	case <-s.over:
		return status.Error(codes.Canceled, "the handler has returned")
	case <-s.callee.Done():
		return status.FromContextError(s.callee.Err()).Err()
	}
}

// RecvMsg returns messages that arrived before the end of the call first.
func (s serverStream) RecvMsg(m any) error {
	select {
	case msg := <-s.requests:
		return move(m, msg)
	default:
	}
	end := io.EOF
	select {
	case msg := <-s.requests:
		return move(m, msg)
	case <-s.halfClosed:
	case <-s.callee.Done():
		end = status.FromContextError(s.callee.Err()).Err()
	}
	select {
	case msg := <-s.requests: // arrived meanwhile
		return move(m, msg)
	default:
		return end
	}
}

func (s serverStream) SetHeader(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heading {
		return status.Error(codes.Internal, "the header was sent before")
	}
	s.header = metadata.Join(s.header, md)
	return nil
}

func (s serverStream) SendHeader(md metadata.MD) error {
	if err := s.SetHeader(md); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.heading {
		s.heading = true
		close(s.headed)
	}
	return nil
}

func (s serverStream) SetTrailer(md metadata.MD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
}

// A transportStream lets grpc.SetTrailer and grpc.Method work inside handlers.
type transportStream struct {
	call   *call
	method string
}

var _ grpc.ServerTransportStream = transportStream{}

func (t transportStream) Method() string                  { return t.method }
func (t transportStream) SetHeader(md metadata.MD) error  { return serverStream{t.call}.SetHeader(md) }
func (t transportStream) SendHeader(md metadata.MD) error { return serverStream{t.call}.SendHeader(md) }
func (t transportStream) SetTrailer(md metadata.MD) error {
	serverStream{t.call}.SetTrailer(md)
	return nil
}
