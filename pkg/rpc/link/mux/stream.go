package mux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/rpc/link/ending"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/rpc/link/inbox"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var (
	errReset   = status.Error(codes.Canceled, "the caller reset the call")
	errHeaders = status.Errorf(codes.ResourceExhausted, "the call's headers do not fit into %d bytes, or are more than %d", frame.MaxPayload, frame.MaxPairs)
	errChanged = status.Error(codes.Internal, "the message was changed while it was sent")
)

// A Stream is one end of a stream on a connection.
type Stream struct {
	// Static.
	conn *Conn
	id   uint32
	read int // credit of read messages that was not granted again yet; owned by the reader

	// Guarded by the connection's mu.
	trailers []string     // of the END
	credit   int          // bytes that may be sent; negative if the last message exceeded it
	large    *large       // a message that is being sent in parts
	sent     error        // why no more messages can be sent; nil while they can
	first    uint8        // messages sent so far; hasty means that many or more
	dropped  bool         // the rest of a large message is not sent
	blocked  bool         // listed in the connection's output
	behind   bool         // the next message is sent in parts, or follows a large message
	room     gate         // opened when a waiting sender should check again whether it may send; nil until one waits
	touched  prefetch.Set // objects that a received message touches

	stop context.CancelFunc // on the callee's end, cancels the handler's context; nil on the caller's end

	in inbox.Inbox
}

func newStream(c *Conn, id uint32) *Stream {
	s := &Stream{conn: c, id: id, credit: c.peer.Window}
	s.in.Init(c.opts.Window+inbox.Cost(c.opts.MaxMessage)+inbox.Cost(partSize), c.opts.MaxMessage) // the last term is for SendLast
	return s
}

// OnOver registers stop, which is called when the stream is over on the callee's end. An Opener
// calls it.
func (s *Stream) OnOver(stop context.CancelFunc) { s.stop = stop }

// Conn returns the connection of the stream.
func (s *Stream) Conn() *Conn { return s.conn }

// Trailer returns the callee's trailers, after Recv has returned the end. A stream that this end
// has canceled has none.
func (s *Stream) Trailer() metadata.MD {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return metadata.Pairs(s.trailers...)
}

// CloseSend tells the callee that the caller sends no more messages.
func (s *Stream) CloseSend() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.closeSend()
}

// closeSend is CloseSend; the caller holds the connection's mu.
func (s *Stream) closeSend() {
	if s.conn.streams[s.id] == s && s.sent == nil {
		s.conn.follow(s, func(b []byte) []byte { return frame.AppendStream(b, frame.Close, s.id) })
	}
}

// hasty is the number of first messages of a stream that do not wait for messages of other streams.
const hasty = 2

// Send sends a message. It blocks while the peer leaves too many bytes unread. on is the Loop that
// carries the message, or nil: Send calls on.Wait before it waits, and the messages of a batch share a
// write.
func (s *Stream) Send(on *stream.Loop, m proto.Message) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.wait(on, false); err != nil {
		return err
	}
	if err := s.add(on, m); err != nil {
		return err
	}
	c.flushBy(on, s.first < hasty)
	s.first = min(s.first+1, hasty)
	return nil
}

// SendLast sends a short last message without waiting for credit or for other messages, and
// half-closes in the same write. A message in parts may block.
func (s *Stream) SendLast(m proto.Message) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.sent != nil {
		return s.sent
	}
	err := s.add(nil, m)
	c.out.haste = true
	s.closeSend() // flushes, unless a large message comes first
	c.flush()
	return err
}

// add adds a message that may be sent now to the output, which the caller flushes. The caller holds
// the connection's mu.
func (s *Stream) add(on *stream.Loop, m proto.Message) error {
	c := s.conn
	size := proto.Size(m) // computed late, because the message may have changed during the wait
	var err error
	switch {
	case size > c.peer.MaxMessage: // the peer refuses the message, as a receiver does on gRPC
		s.credit -= inbox.Cost(0)
		c.follow(s, func(b []byte) []byte { return frame.AppendTooLong(b, s.id, size) })
		return nil
	case size > partSize:
		size, err = s.sendLarge(on, m)
	case s.large != nil:
		var b []byte
		b, err = proto.Marshal(m)
		if err == nil {
			s.large.behind = appendItem(s.large.behind, s.id, b)
		}
	default:
		err = c.out.item(s.id, m, size)
	}
	switch {
	case err != nil && s.sent != nil:
		return s.sent
	case err != nil:
		return status.Errorf(codes.Internal, "a message cannot be encoded: %v", err)
	}
	s.credit -= inbox.Cost(size)
	return nil
}

// sendLarge sends m in parts, and returns its size in bytes. The caller holds the connection's mu,
// which is released while m is encoded.
func (s *Stream) sendLarge(on *stream.Loop, m proto.Message) (size int, err error) {
	encoded, err := s.encode(m)
	if err == nil {
		err = s.wait(on, true)
	}
	size = len(encoded)
	switch {
	case err != nil:
		return 0, err
	case size > s.conn.peer.MaxMessage:
		return 0, errChanged
	case s.large == nil:
		s.large = &large{stream: s, rest: encoded}
		s.conn.out.large = append(s.conn.out.large, s.large)
	default:
		for len(encoded) > 0 {
			s.large.behind, encoded = frame.AppendPart(s.large.behind, s.id, encoded, partSize)
		}
	}
	return size, nil
}

// encode encodes m. The caller holds the connection's mu, which is released during the encoding.
func (s *Stream) encode(m proto.Message) ([]byte, error) {
	s.conn.mu.Unlock()
	defer s.conn.mu.Lock()
	return proto.Marshal(m)
}

// wait blocks until a message may be sent, in parts if inParts is true. It returns an error if the
// stream accepts no more messages. The caller holds the connection's mu, which is released during
// the wait.
func (s *Stream) wait(on *stream.Loop, inParts bool) error {
	c := s.conn
	for s.sent == nil {
		s.behind = inParts || s.large != nil
		full := c.out.full(s.behind, maxWaiting)
		if s.credit > 0 && !full {
			return nil
		}
		if full && !s.blocked && c.err == nil {
			s.blocked = true
			c.out.blocked = append(c.out.blocked, s)
		}
		if s.room == nil {
			s.room = make(gate, 1)
		}
		room := s.room
		c.mu.Unlock()
		on.Wait()
		<-room
		c.mu.Lock()
	}
	return s.sent
}

// Recv receives a message. For a message that cannot be decoded, it returns an error with the given
// code; the stream continues with the next message.
func (s *Stream) Recv(m any, code codes.Code) error {
	out, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	message, err := s.in.Next()
	return s.decode(message, err, out, code)
}

// Attend passes each message, or the error of a message that cannot be decoded, to take, as
// Inbox.Attend does. fresh makes the messages. A panic of fresh, of the decoding, or of take ends
// only this stream: take is not called again, and ended gets the panic as a *streamerr.Error. The
// connection of the caller's end loads the objects of ctx's stream into the cache before it passes
// a message on (package prefetch).
func (s *Stream) Attend(ctx context.Context, fresh func() any, take func(on *stream.Loop, m any, err error) bool, ended func(err error), code codes.Code) {
	var panicked error
	pass := func(on *stream.Loop, message []byte, err error) (more bool) {
		defer func() {
			if v := recover(); v != nil {
				panicked, more = panicOf(v), false
			}
		}()
		m := fresh()
		if out, ok := m.(proto.Message); ok {
			return take(on, m, s.decode(message, err, out, code))
		}
		return take(on, m, status.Errorf(codes.Internal, "%T is not a protobuf message", m))
	}
	if s.conn.serve == nil {
		objects := prefetch.Collect(prefetch.WithTouched(ctx, s), prefetch.Func(pass), prefetch.Func(take), prefetch.Func(fresh))
		s.conn.mu.Lock()
		s.touched = objects
		s.conn.mu.Unlock()
	}
	s.in.Attend(pass, func(err error) { ended(cmp.Or(panicked, err)) })
}

// panicOf returns the error of a stream whose message could not be passed to its reader. Its cause,
// for the log, has the stack. A deferred function calls it.
func panicOf(v any) error {
	e := streamerr.New(streamerr.Internal, "a bug ended this stream: a message could not be handed to its reader")
	e.Cause = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
	return e
}

// decode decodes a message of the inbox, or returns the inbox's error.
func (s *Stream) decode(message []byte, err error, out proto.Message, code codes.Code) error {
	if n, ok := errors.AsType[inbox.TooLong](err); ok {
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

// More reports whether Recv would return at once. Only the goroutine that calls Recv may call it.
func (s *Stream) More() bool { return s.in.More() }

// grant gives the peer new credit for the bytes that were read.
func (s *Stream) grant(size int) {
	s.read += inbox.Cost(size)
	if s.read < s.conn.opts.Window/2 {
		return
	}
	n := s.read
	s.read = 0
	s.conn.control(func(b []byte) []byte { return frame.AppendCredit(b, s.id, n) })
}

// over ends the sending side with err, which send returns from now on.
func (s *Stream) over(err error) {
	s.conn.mu.Lock()
	if s.sent == nil {
		s.sent = err
	}
	s.room.open()
	s.conn.mu.Unlock()
}

// reset ends the callee's end after a RESET. A Stop that arrived before the RESET can still be
// read.
func (s *Stream) reset() {
	s.conn.mu.Lock()
	s.dropped = true
	s.conn.mu.Unlock()
	s.conn.forget(s)
	s.over(errReset)
	s.stop() // before the reader gets errReset, because it then checks whether the call is over
	s.in.End(errReset)
}

// Expire ends the callee's end because its context is done: the deadline has passed, unless the
// stream has already ended.
func (s *Stream) Expire(err error) {
	s.over(err)
	s.in.End(err)
}

// broke ends the stream with its connection. Messages that arrived before can be read.
func (s *Stream) broke(why error) {
	err := status.Errorf(codes.Unavailable, "the connection broke: %v", why)
	s.over(err)
	if s.stop != nil {
		s.stop()
	}
	s.in.End(err)
}

// ended ends the caller's end with the callee's ending.
func (s *Stream) ended(e frame.Ending) {
	s.conn.mu.Lock()
	if !s.dropped {
		s.trailers = e.Trailers
	}
	s.conn.mu.Unlock()
	s.over(io.EOF)
	s.in.End(ending.Err(e.Status))
}

// Cancel ends the caller's end because of err, and resets the stream.
func (s *Stream) Cancel(err error) {
	c := s.conn
	c.mu.Lock()
	if c.streams[s.id] != s || s.dropped { // the stream has ended
		c.mu.Unlock()
		s.in.Drop(err)
		return
	}
	s.dropped = true
	c.out.forget(s)
	c.add(func(b []byte) []byte { return frame.AppendStream(b, frame.Reset, s.id) })
	c.mu.Unlock()
	c.forget(s) // after the RESET: a connection after a GOAWAY ends with its last stream
	s.over(io.EOF)
	s.in.Drop(err)
}

// Finish sends the ending of a stream whose handler has returned err.
func (s *Stream) Finish(err error, trailers metadata.MD) {
	e := frame.Ending{Stream: s.id, Status: ending.Encode(err), Trailers: frame.Pairs(trailers)}
	c := s.conn
	c.mu.Lock()
	if c.streams[s.id] == s {
		c.follow(s, func(b []byte) []byte { return ending.Append(b, e) })
	}
	c.mu.Unlock()
	c.forget(s)
	s.over(errReset)
	s.stop()
	s.in.Drop(errReset)
}

// A gate lets one goroutine wait for a signal of another goroutine. It has capacity 1, or is nil
// while no goroutine waits.
type gate chan struct{}

// open signals the waiting goroutine, if there is one. It does not block.
func (g gate) open() {
	select {
	case g <- struct{}{}:
	default:
	}
}

// partSize is the length of the parts of large messages, and the longest message that is sent
// whole, in bytes.
const partSize = 16 << 10

var _ = [1]struct{}{}[(partSize+frame.MaxItemHead)/frame.MaxPayload] // a whole message fits into a frame
