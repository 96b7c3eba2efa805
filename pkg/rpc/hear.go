package rpc

import (
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/whence-dev/whence/pkg/rpc/cause"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/rpc/protocol"
	"github.com/whence-dev/whence/pkg/rpc/wire"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// After maxUnreadable unreadable messages in a row, the rest of a call is not read.
const maxUnreadable = 8

// A requestReader reads the messages that follow the request of a call.
type requestReader[Req, In, Out any] struct {
	*callee
	m          *Method[Req, In, Out]
	inbox      *stream.Inbox[*In] // nil if the method takes no items
	unreadable int                // unreadable messages since the last readable one
}

// readRequests reads the messages that follow the request, until the call ends. It returns at once.
// sink is nil if the call is not over a link.
func readRequests[Req, In, Out any](s *callee, st grpc.BidiStreamingServer[In, Out], sink loop.Sink, m *Method[Req, In, Out], inbox *stream.Inbox[*In]) {
	h := &requestReader[Req, In, Out]{callee: s, m: m, inbox: inbox}
	if sink != nil {
		take := func(in any, err error) bool {
			return h.take(func() (*In, error) { return in.(*In), err }) //nolint:forcetypeassert // made here
		}
		sink.Attend(func() any { return new(In) }, take, func(err error) {
			if cause.Classified(err) { // a panic of this process
				stream.ControlOf(h.ctx).Stop(err)
			}
			h.ended(err)
		})
		return
	}
	go func() {
		var last error
		receive := func() (in *In, err error) {
			in, last = st.Recv()
			return in, last
		}
		for h.take(receive) {
		}
		h.ended(last)
	}()
}

// ended tells the machine that no more messages will arrive. A Stop that arrived before the end of
// the call has already reached the machine.
func (h *requestReader[Req, In, Out]) ended(err error) {
	if errors.Is(err, io.EOF) && h.inbox != nil { // a half-close does not cancel the call
		h.inbox.Close()
	}
	h.step(protocol.Event{Kind: protocol.HalfClose})
}

// take handles a message, or the error of Recv. It returns false after the last message.
func (h *requestReader[Req, In, Out]) take(receive func() (*In, error)) (more bool) {
	defer func() {
		if v := recover(); v != nil {
			stream.ControlOf(h.ctx).Stop(h.hop.panicked(h.ctx, v))
		}
	}()
	in, err := receive()
	switch {
	case errors.Is(err, io.EOF), err != nil && h.call.Err() != nil && !refused(err):
		return false
	case err != nil:
		e := streamerr.New(streamerr.Invalid, "a message of the caller could not be read: %s", status.Convert(err).Message())
		e.Cause = err
		h.step(protocol.Event{Kind: protocol.Unreadable, Err: e, Own: refused(err)})
		h.unreadable++
		return h.unreadable < maxUnreadable
	}
	h.unreadable = 0
	if stop, ok := h.m.stopped(in); ok {
		h.step(protocol.Event{Kind: protocol.Stop, Err: wire.FromStop(h.call, stop, streamerr.UserStop), Grace: stop.GetGrace().AsDuration()})
		return true
	}
	if unknown(in) {
		return true // a caller of a later release must be able to do without an answer
	}
	if do, _ := h.step(protocol.Event{Kind: protocol.Message}); do.Verb != protocol.Put {
		return true
	}
	if err := h.inbox.Put(in, size(in)); err != nil {
		h.step(protocol.Event{Kind: protocol.Stop, Err: streamerr.New(streamerr.Invalid, "%v: wait for answers", err)})
	}
	return true
}

// refused reports whether an error of Recv concerns one message. grpc-go ends the call for such a
// message.
func refused(err error) bool {
	code := status.Code(err)
	return code == codes.Internal || code == codes.ResourceExhausted || code == codes.Unimplemented
}

// unknown reports whether all fields of a message are unknown to this release, as in a kind of
// message that a later release has.
func unknown(m any) bool {
	p, ok := m.(proto.Message)
	if !ok || len(p.ProtoReflect().GetUnknown()) == 0 {
		return false
	}
	known := false
	p.ProtoReflect().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		known = true
		return false
	})
	return !known
}

func size(m any) int {
	if m, ok := m.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}

// lost tells the observer if the caller has gone before it received the outcome.
func (s *callee) lost() {
	s.mu.Lock()
	lost := s.machine.Lost()
	s.mu.Unlock()
	if lost || s.call.Err() != nil {
		observer.Of(s.ctx).Note(observer.Event{Kind: observer.CallerLost, Err: wire.Lost(s.call)})
	}
}
