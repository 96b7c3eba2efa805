package mux

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

var (
	errReset   = status.Error(codes.Canceled, "the caller reset the call")
	errHeaders = status.Errorf(codes.ResourceExhausted, "the call's headers do not fit into %d bytes, or are more than %d", frame.MaxPayload, frame.MaxPairs)
	errChanged = status.Error(codes.Internal, "the message was changed while it was sent")
)

// A Stream is one end of a stream of a connection.
type Stream struct {
	// Static.
	conn *Conn
	id   uint32
	in   queue
	room gate // what kept a sender from sending may be over

	read int // credit that was not granted again yet; owned by the reader

	// Set once, before in has its end.
	trailers []string

	// Guarded by the connection's mu.
	credit  int    // what may be sent; negative if the last message exceeded it
	large   *large // a message that is sent in parts
	sent    error  // why nothing more can be sent; nil while it can
	dropped bool   // the rest of a large message is not sent
	blocked bool   // is listed in the connection's output

	stop context.CancelFunc // on the callee's end, cancels the handler's context; nil on the caller's
}

func newStream(c *Conn, id uint32) *Stream {
	return &Stream{
		conn: c, id: id, room: newGate(), credit: c.peer.Window,
		in: queue{limit: c.opts.Window + cost(c.opts.MaxMessage), maxMessage: c.opts.MaxMessage, ready: newGate()},
	}
}

// OnOver has stop called when the stream is over on the callee's end. An Opener calls it.
func (s *Stream) OnOver(stop context.CancelFunc) { s.stop = stop }

// Conn returns the connection of the stream.
func (s *Stream) Conn() *Conn { return s.conn }

// Trailer returns the callee's trailers, once Recv has returned the end.
func (s *Stream) Trailer() metadata.MD { return metadata.Pairs(s.trailers...) }

// CloseSend tells the callee that no more messages come.
func (s *Stream) CloseSend() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[s.id] == s && s.sent == nil {
		c.follow(s, func(b []byte) []byte { return frame.AppendStream(b, frame.Close, s.id) })
	}
}

// Send sends a message, and waits while the peer leaves too much unread.
func (s *Stream) Send(m proto.Message) error {
	size := proto.Size(m)
	c := s.conn
	long := size > c.peer.MaxMessage
	var encoded []byte
	if size > partSize && !long {
		b, err := proto.Marshal(m)
		if err != nil {
			return status.Errorf(codes.Internal, "a message cannot be encoded: %v", err)
		}
		encoded = b
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.wait(); err != nil {
		return err
	}
	if long { // the peer refuses it, as the receiver does on gRPC
		s.credit -= cost(0)
		c.follow(s, func(b []byte) []byte { return frame.AppendTooLong(b, s.id, size) })
		return nil
	}
	switch {
	case encoded != nil && s.large == nil:
		s.large = &large{stream: s, rest: encoded}
		c.out.large = append(c.out.large, s.large)
	case encoded != nil:
		for len(encoded) > 0 {
			s.large.behind, encoded = frame.AppendPart(s.large.behind, s.id, encoded, partSize)
		}
	case s.large != nil:
		b, err := proto.Marshal(m)
		if err != nil {
			return status.Errorf(codes.Internal, "a message cannot be encoded: %v", err)
		}
		s.large.behind = appendItem(s.large.behind, s.id, b)
	default:
		if err := c.out.item(s.id, m, size); err != nil {
			return status.Errorf(codes.Internal, "a message cannot be encoded: %v", err)
		}
	}
	s.credit -= cost(size)
	c.flush()
	return nil
}

// wait waits until a message may be sent, and returns why none can be. The connection's mu is held,
// but not meanwhile.
func (s *Stream) wait() error {
	c := s.conn
	for s.sent == nil && (s.credit <= 0 || len(c.out.bytes) >= maxWaiting) {
		if len(c.out.bytes) >= maxWaiting && !s.blocked && c.err == nil {
			s.blocked = true
			c.out.blocked = append(c.out.blocked, s)
		}
		c.mu.Unlock()
		<-s.room
		c.mu.Lock()
	}
	return s.sent
}

// Recv receives a message. What cannot be decoded is an error with a code, and the message behind it
// can be received.
func (s *Stream) Recv(m any, code codes.Code) error {
	out, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	message, err := s.in.next()
	if n, ok := errors.AsType[tooLong](err); ok {
		s.grant(0)
		return status.Errorf(codes.ResourceExhausted, "received a message of %d bytes; at most %d are allowed", int(n), s.conn.opts.MaxMessage)
	}
	if err != nil {
		return err
	}
	err = proto.Unmarshal(message, out)
	s.grant(len(message))
	if err != nil {
		return status.Error(code, fmt.Sprintf("the message is not a %s: %v", out.ProtoReflect().Descriptor().FullName(), err))
	}
	return nil
}

// grant lets the peer send as much again as was read.
func (s *Stream) grant(size int) {
	s.read += cost(size)
	if s.read < s.conn.opts.Window/2 {
		return
	}
	n := s.read
	s.read = 0
	s.conn.control(func(b []byte) []byte { return frame.AppendCredit(b, s.id, n) })
}

// over ends the sending end with err, which send returns from now on.
func (s *Stream) over(err error) {
	s.conn.mu.Lock()
	if s.sent == nil {
		s.sent = err
	}
	s.conn.mu.Unlock()
	s.room.open()
}

// reset ends the callee's end after a RESET. A Stop that came before is still read.
func (s *Stream) reset() {
	s.conn.mu.Lock()
	s.dropped = true
	s.conn.mu.Unlock()
	s.conn.forget(s)
	s.over(errReset)
	s.stop() // before the reader learns of it: it asks whether the call is over
	s.in.end(errReset)
}

// Expire ends the callee's end after its context: the deadline has passed, unless the stream has
// ended otherwise.
func (s *Stream) Expire(err error) {
	s.over(err)
	s.in.end(err)
}

// broke ends the stream with its connection. Messages that came before can be read.
func (s *Stream) broke(why error) {
	err := status.Errorf(codes.Unavailable, "the connection broke: %v", why)
	s.over(err)
	if s.stop != nil {
		s.stop()
	}
	s.in.end(err)
}

// ended ends the caller's end with the callee's ending.
func (s *Stream) ended(e frame.Ending) {
	s.trailers = e.Trailers
	s.over(io.EOF)
	s.in.end(statusOf(e.Status))
}

// Cancel ends the caller's end because of err, and resets the stream.
func (s *Stream) Cancel(err error) {
	c := s.conn
	c.mu.Lock()
	if c.streams[s.id] != s { // it has ended
		c.mu.Unlock()
		s.in.drop(err)
		return
	}
	s.dropped = true
	c.mu.Unlock()
	c.forget(s)
	c.control(func(b []byte) []byte { return frame.AppendStream(b, frame.Reset, s.id) })
	s.over(io.EOF)
	s.in.drop(err)
}

// Finish sends the ending of a stream whose handler has returned err.
func (s *Stream) Finish(err error, trailers metadata.MD) {
	e := frame.Ending{Stream: s.id, Status: encodeStatus(err), Trailers: Pairs(trailers)}
	c := s.conn
	c.mu.Lock()
	if c.streams[s.id] == s {
		c.follow(s, func(b []byte) []byte { return appendEnd(b, e) })
	}
	c.mu.Unlock()
	c.forget(s)
	s.over(errReset)
	s.stop()
	s.in.drop(errReset)
}

// appendEnd appends an END. What does not fit is left out: details and trailers first.
func appendEnd(b []byte, e frame.Ending) []byte {
	if out, ok := frame.AppendEnd(b, e); ok {
		return out
	}
	short := status.New(codes.Internal, "the ending was too long to be sent")
	if st, err := decodeStatus(e.Status); err == nil && st.Code() != codes.OK {
		short = status.New(st.Code(), st.Message()[:min(len(st.Message()), maxShort)])
	}
	e.Status, e.Trailers = encodeStatus(short.Err()), nil
	out, _ := frame.AppendEnd(b, e)
	return out
}

// maxShort bounds the message of a status that is too long for a frame.
const maxShort = 4 << 10

// encodeStatus encodes the status of a handler's error; nil is OK.
func encodeStatus(err error) []byte {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	if st.Code() == codes.OK {
		return nil
	}
	b, err := proto.Marshal(st.Proto())
	if err != nil { // the message is not UTF-8
		b, _ = proto.Marshal(status.New(st.Code(), fmt.Sprintf("%q", st.Message())).Proto())
	}
	return b
}

// statusOf returns the error of a call that has ended with an encoded status: io.EOF for OK.
func statusOf(encoded []byte) error {
	if len(encoded) == 0 {
		return io.EOF
	}
	st, err := decodeStatus(encoded)
	if err != nil {
		return status.Errorf(codes.Internal, "the callee's status cannot be decoded: %v", err)
	}
	if st.Code() == codes.OK {
		return io.EOF
	}
	return st.Err()
}

func decodeStatus(encoded []byte) (*status.Status, error) {
	p := status.New(codes.OK, "").Proto()
	if err := proto.Unmarshal(encoded, p); err != nil {
		return nil, err
	}
	return status.FromProto(p), nil
}

// Pairs returns the keys and values of md in turn.
func Pairs(md metadata.MD) []string {
	if len(md) == 0 {
		return nil
	}
	pairs := make([]string, 0, 2*len(md))
	for key, values := range md {
		for _, value := range values {
			pairs = append(pairs, key, value)
		}
	}
	return pairs
}
