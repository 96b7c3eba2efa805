// Package rpc carries a stream.Engine across a process boundary, over gRPC or links (package link),
// transparently to the caller: the same items, the same endings, and a stop that arrives with its
// cause.
//
// A bidi method carries one stream. Its first message is the request; later messages are control
// messages. To stop a stream the caller sends a Stop, half-closes and awaits the trailers. It
// resets the call only after the grace, because RST_STREAM carries no cause and overtakes any
// message that could. Serve is the callee's side, Dial the caller's. Both use the types of grpc-go;
// package kitexrpc provides these types for Kitex servers and clients. A server distinguishes a
// caller's reset from a broken connection: kitexrpc's servers do so themselves, grpc-go's servers
// need package connloss.
//
// A unary method carries a stream of one item: see ServeUnary and DialUnary. Package serverstream
// carries a stream over a server-streaming method, whose messages have no room for a Stop. Package
// inprocess joins two hops of one process.
//
// A request may be a sequence: a Method with an Inbox passes later messages to the engine as they
// arrive, until the caller half-closes. In this way Serve supports client streaming and
// conversations. A stream that waits for its caller has a separate timer, and a drain does not wait
// for it.
//
// On the wire, a failed stream ends with a status that carries google.rpc.ErrorInfo, and every
// stream ends with the trailers whence-end-reason, whence-end-path and whence-tokens-generated (the
// number of tokens that engines below have generated for the stream). The trailer
// whence-tokens-consumed is the number of tokens that engines below got as input, if there are any.
// The request metadata whence-via names the hops that a call has crossed.
package rpc

import (
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Method tells Serve and Dial how to read and build the messages of a bidi method. In and Out are
// the message types, and Req is the request type of the engines. Every field may be nil.
type Method[Req, In, Out any] struct {
	// Operation names the work of the streams, for the Observer, if it differs from the hop's usual
	// work.
	Operation string
	// Open wraps a request in a message. Opened unwraps it; ok is false if the message is not a
	// request. If nil, requests are sent as they are: Req must then be *In.
	Open   func(Req) *In
	Opened func(*In) (req Req, ok bool)
	// Stop wraps a Stop in a message. Stopped unwraps it; ok is false if the message is not a Stop.
	// If nil, messages have no room for a Stop: a stream is then stopped by a reset of its call,
	// and the callee does not learn the cause.
	Stop    func(*streamv1.Stop) *In
	Stopped func(*In) (stop *streamv1.Stop, ok bool)
	// Inbox returns the inbox for the later messages of a request that is a sequence. It is nil if
	// a request is one message.
	Inbox func(Req) *stream.Inbox[*In]
	// ID returns a pointer to the request's field for the stream id. If nil, each hop makes its own
	// id.
	ID func(Req) *string
	// Owner returns the owner that the request names. It is nil if requests name no owners.
	Owner func(Req) string
	// Started reports whether a message says that the request was admitted. If nil, no message says
	// so.
	Started func(*Out) bool
	// PartEnded reports whether a message ends a turn of a stream with several turns, or one of its
	// several choices. If nil, no message does.
	PartEnded func(*Out) bool
	// Tokens returns the number of tokens that a message counts, even if the message is an End.
	// Exactly one message counts each token of a stream. If nil, each message counts one token,
	// except admissions and endings.
	Tokens func(*Out) int
	// End returns the ending that a message carries, or nil. If nil, no message carries an ending:
	// the stream has completed when its engine has no more items.
	End func(*Out) *streamerr.Ending
}

// owner returns the owner that a request names, or "" if it names none.
func (m *Method[Req, In, Out]) owner(req Req) string {
	if m == nil || m.Owner == nil {
		return ""
	}
	return m.Owner(req)
}

// request returns the first message of a call.
func (m *Method[Req, In, Out]) request(req Req) (*In, error) {
	if m != nil && m.Open != nil {
		return m.Open(req), nil
	}
	if in, ok := any(req).(*In); ok {
		return in, nil
	}
	return nil, streamerr.New(streamerr.Internal, "rpc.Method has no Open, and a %T cannot be sent as it is", req)
}

// opened returns the request in the first message of a call.
func (m *Method[Req, In, Out]) opened(in *In) (req Req, ok bool) {
	if m != nil && m.Opened != nil {
		return m.Opened(in)
	}
	req, ok = any(in).(Req)
	return req, ok
}

// control returns the message that stops a stream, or nil if there is none.
func (m *Method[Req, In, Out]) control(stop *streamv1.Stop) *In {
	if m == nil || m.Stop == nil {
		return nil
	}
	return m.Stop(stop)
}

func (m *Method[Req, In, Out]) stopped(in *In) (stop *streamv1.Stop, ok bool) {
	if m == nil || m.Stopped == nil {
		return nil, false
	}
	return m.Stopped(in)
}

func (m *Method[Req, In, Out]) inbox(req Req) *stream.Inbox[*In] {
	if m == nil || m.Inbox == nil {
		return nil
	}
	return m.Inbox(req)
}

// id returns a pointer to the stream id of req, or to an empty string if req has no id.
func (m *Method[Req, In, Out]) id(req Req) *string {
	if m != nil && m.ID != nil {
		if id := m.ID(req); id != nil {
			return id
		}
	}
	return new(string)
}

func (m *Method[Req, In, Out]) started(out *Out) bool {
	return m != nil && m.Started != nil && m.Started(out)
}

// announces reports whether a message, which carries end, says that the stream or a part of it was
// admitted or has ended.
func (m *Method[Req, In, Out]) announces(out *Out, end *streamerr.Ending) bool {
	return end != nil || m.started(out) || m != nil && m.PartEnded != nil && m.PartEnded(out)
}

func (m *Method[Req, In, Out]) tokens(out *Out) int {
	switch {
	case m != nil && m.Tokens != nil:
		return m.Tokens(out)
	case m.started(out) || m.end(out) != nil:
		return 0
	default:
		return 1
	}
}

func (m *Method[Req, In, Out]) end(out *Out) *streamerr.Ending {
	if m == nil || m.End == nil {
		return nil
	}
	return m.End(out)
}

// mute reports whether the method's messages cannot carry a Stop.
func (m *Method[Req, In, Out]) mute() bool { return m == nil || m.Stop == nil }

// endless reports whether the method's messages cannot carry an ending.
func (m *Method[Req, In, Out]) endless() bool { return m == nil || m.End == nil }

// operation returns m.Operation, or "" for the operation of the hop.
func (m *Method[Req, In, Out]) operation() string {
	if m == nil {
		return ""
	}
	return m.Operation
}
