package network

import (
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
)

// A Call is one call. Its Report is read after the schedule.
type Call struct {
	// Static.
	From, To, Method string
	Opened           time.Time

	id       uint64
	unary    bool
	conn     *conn
	down, up *queue
	cancel   context.CancelFunc // of the callee's context
	undo     func() bool

	mu           sync.Mutex // guards the following fields
	request      []byte
	trailer      metadata.MD
	returned     time.Time // when the handler returned; zero before
	served       bool
	brokeAt      time.Time // when the connection broke before the end reached the caller; zero if it did not
	lostAt       time.Time // when the callee noticed that the connection had broken; zero before
	delayed      bool      // the connection was stalled before the caller knew the end
	known        bool      // the end has reached the caller
	knownAt      time.Time
	resetAt      time.Time
	said         time.Time // when the handler sent its last message
	last         []byte    // that message, encoded
	sentMsgs     int       // number of messages that the handler sent
	receivedMsgs int       // number of messages that the caller received
	receivedAt   time.Time // when the caller received the last of them
	quiet        time.Duration
	status       error // of the handler, once it has returned
}

// A Report is the outcome of a call.
type Report struct {
	Request  []byte        // the first message, encoded; nil if there was none
	Served   bool          // the handler has begun
	Returned time.Time     // when the handler returned; zero if it still runs
	Trailer  metadata.MD   // set by the handler
	Broke    time.Time     // when the connection broke; zero if it did not break before the end reached the caller
	Lost     time.Time     // when the callee noticed that the connection had broken; zero if it has not
	Late     bool          // a message had to wait because the connection was stalled, before the caller knew the end
	Known    time.Time     // when the end reached the caller; zero if it has not
	Reset    time.Time     // when the caller reset the call; zero if it did not
	Said     time.Time     // when the handler sent its last message; zero if it sent none
	Last     []byte        // the last message of the handler, encoded, if the caller has received it
	Messages int           // number of messages that the caller received
	Heard    time.Time     // when the caller received the last message so far; zero if there was none
	Quiet    time.Duration // the longest wait of the caller for a message
	Err      error         // the status with which the handler returned; nil for OK
}

// Caller returns the calling process.
func (c *Call) Caller() *Host { return c.conn.from }

// Callee returns the called process.
func (c *Call) Callee() *Host { return c.conn.to }

// Report returns the outcome of the call.
func (c *Call) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := Report{
		Request: c.request, Served: c.served, Returned: c.returned, Trailer: c.trailer, Broke: c.brokeAt, Lost: c.lostAt, Late: c.delayed,
		Known: c.knownAt, Reset: c.resetAt, Said: c.said, Messages: c.receivedMsgs, Heard: c.receivedAt, Quiet: c.quiet, Err: c.status,
	}
	if c.receivedMsgs == c.sentMsgs {
		r.Last = c.last
	}
	return r
}

// A transportStream is a call in the callee's context.
type transportStream struct{ call *Call }

var _ grpc.ServerTransportStream = transportStream{}

// Method implements grpc.ServerTransportStream.
func (t transportStream) Method() string { return t.call.Method }

// SetHeader implements grpc.ServerTransportStream.
func (t transportStream) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerTransportStream.
func (t transportStream) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerTransportStream.
func (t transportStream) SetTrailer(md metadata.MD) error {
	t.call.setTrailer(md)
	return nil
}

// serve runs the handler.
func (c *Call) serve(ctx context.Context, handler grpc.StreamHandler, impl any) {
	n := c.conn.net
	defer func() {
		n.mu.Lock()
		n.open--
		n.mu.Unlock()
		c.conn.to.serving.Done()
	}()
	defer c.cancel()
	if c.conn.isBroken() || ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	c.served = true
	c.mu.Unlock()
	err := handler(impl, &serverStream{call: c, ctx: ctx})
	if err != nil {
		s, ok := status.FromError(err)
		if !ok {
			s = status.FromContextError(err)
		}
		err = s.Err()
	}
	c.mu.Lock()
	c.returned, c.status = time.Now(), err
	trailer := c.trailer.Copy()
	c.mu.Unlock()
	if err == nil {
		err = io.EOF
	}
	if !c.conn.isBroken() {
		c.up.end(err, trailer, c.up.arrival())
	}
	c.down.drop()
	c.down.abort(status.Error(codes.Canceled, "the handler has returned"))
}

// reset ends the call because the caller's context has ended. The reset overtakes messages.
func (c *Call) reset(ctx context.Context) {
	err := status.FromContextError(ctx.Err()).Err()
	c.mu.Lock()
	known := c.known
	if !known {
		c.resetAt = time.Now()
	}
	c.mu.Unlock()
	if known {
		c.forget()
		return
	}
	c.up.abort(err)
	c.down.shut()
	time.AfterFunc(time.Until(c.late(time.Now().Add(c.conn.net.delay(c.id, 5, 0)))), func() {
		if !c.conn.isBroken() {
			c.down.end(status.Error(codes.Canceled, "the caller has reset the call"), nil, time.Time{})
			c.up.shut()
			c.cancel()
		}
		c.forget()
	})
}

// forget removes the call from its connection.
func (c *Call) forget() {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	delete(c.conn.calls, c)
}

// late returns the arrival time of a message that is due at a time, given the stalls of the link.
func (c *Call) late(due time.Time) time.Time {
	n := c.conn.net
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.link(c.From, c.To)
	if due.After(l.stalledFrom) && due.Before(l.stalledUntil) {
		c.mu.Lock()
		c.delayed = c.delayed || !c.known
		c.mu.Unlock()
		return l.stalledUntil
	}
	return due
}

// cutAt drops everything that had not arrived by a time.
func (c *Call) cutAt(now time.Time) {
	c.down.cut(now)
	came := c.up.cut(now)
	c.mu.Lock()
	if !c.known && !came && c.brokeAt.IsZero() {
		c.brokeAt = now
	}
	c.mu.Unlock()
}

// sent counts a message. It reports false if the connection breaks in its place.
func (c *Call) sent() bool {
	n := c.conn.net
	if c.unary {
		return true
	}
	n.mu.Lock()
	n.messages++
	count, l := n.messages, n.link(c.From, c.To)
	cut := l.cutAfter == 1
	l.cutAfter = max(0, l.cutAfter-1)
	n.mu.Unlock()
	if cut {
		c.conn.cut(nil)
		return false
	}
	if n.step != nil {
		n.step(count)
	}
	return true
}

// A clientStream is the caller's side of a call.
type clientStream struct {
	call *Call
	ctx  context.Context //nolint:containedctx // as grpc.ClientStream has it
	mu   sync.Mutex
	md   metadata.MD
}

var _ grpc.ClientStream = (*clientStream)(nil)

// Header implements grpc.ClientStream.
func (s *clientStream) Header() (metadata.MD, error) { return nil, nil }

// Trailer implements grpc.ClientStream.
func (s *clientStream) Trailer() metadata.MD {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.md
}

// CloseSend implements grpc.ClientStream.
func (s *clientStream) CloseSend() error {
	s.call.down.end(io.EOF, nil, s.call.down.arrival())
	return nil
}

// Context implements grpc.ClientStream.
func (s *clientStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ClientStream.
func (s *clientStream) SendMsg(m any) error {
	b, err := proto.Marshal(m.(proto.Message)) //nolint:forcetypeassert // all messages are protobuf messages
	if err != nil {
		return err
	}
	s.call.mu.Lock()
	if s.call.request == nil {
		s.call.request = b
	}
	s.call.mu.Unlock()
	if !s.call.sent() {
		return io.EOF
	}
	if s.call.down.put(b, s.ctx.Done()) != nil {
		return io.EOF
	}
	return nil
}

// RecvMsg implements grpc.ClientStream.
func (s *clientStream) RecvMsg(m any) error {
	b, md, err := s.call.up.take()
	if err != nil {
		s.mu.Lock()
		if s.md == nil {
			s.md = md
		}
		s.mu.Unlock()
		s.call.mu.Lock()
		if !s.call.known {
			s.call.known, s.call.knownAt = true, time.Now()
		}
		s.call.mu.Unlock()
		if s.call.undo() {
			s.call.forget()
		}
		return err
	}
	s.call.received()
	if m == nil {
		return errors.New("network: the unary call got a second response")
	}
	return proto.Unmarshal(b, m.(proto.Message)) //nolint:forcetypeassert // all messages are protobuf messages
}

// A serverStream is the callee's side of a call.
type serverStream struct {
	call *Call
	ctx  context.Context //nolint:containedctx // as grpc.ServerStream has it
}

var _ grpc.ServerStream = (*serverStream)(nil)

// Context implements grpc.ServerStream.
func (s *serverStream) Context() context.Context { return s.ctx }

// SetHeader implements grpc.ServerStream.
func (s *serverStream) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream.
func (s *serverStream) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (s *serverStream) SetTrailer(md metadata.MD) { s.call.setTrailer(md) }

// SendMsg implements grpc.ServerStream.
func (s *serverStream) SendMsg(m any) error {
	b, err := proto.Marshal(m.(proto.Message)) //nolint:forcetypeassert // all messages are protobuf messages
	if err != nil {
		return err
	}
	s.call.mu.Lock()
	s.call.said, s.call.last = time.Now(), b
	s.call.sentMsgs++
	s.call.mu.Unlock()
	if !s.call.sent() {
		return nil // a broken connection is noticed later
	}
	if err := s.call.up.put(b, s.ctx.Done()); err != nil {
		return status.Error(codes.Canceled, err.Error())
	}
	return nil
}

// RecvMsg implements grpc.ServerStream.
func (s *serverStream) RecvMsg(m any) error {
	b, _, err := s.call.down.take()
	if err != nil {
		return err
	}
	return proto.Unmarshal(b, m.(proto.Message)) //nolint:forcetypeassert // all messages are protobuf messages
}

// received records that the caller received a message.
func (c *Call) received() {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.receivedAt
	if since.IsZero() {
		since = c.Opened
	}
	c.receivedMsgs, c.receivedAt = c.receivedMsgs+1, time.Now()
	c.quiet = max(c.quiet, c.receivedAt.Sub(since))
}

func (c *Call) setTrailer(md metadata.MD) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trailer = metadata.Join(c.trailer, md)
}
