package websocket

import (
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/internal/panicvalue"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// closeWait bounds the wait for the client's close frame; closeWaitDraining does so while the
	// process drains.
	closeWait         = time.Second
	closeWaitDraining = 200 * time.Millisecond
)

// Rules configure a Session: the bounds for its client, and its callbacks.
type Rules struct {
	// Name is the name of the hop, and Log gets the stack of a panic.
	Name string
	Log  *slog.Logger
	// KeepAlive is the time between pings, and Patience how long the client may take to answer a
	// ping. 0 means no pings, or no bound.
	KeepAlive, Patience time.Duration
	// Take takes a message, on the goroutine that reads, and must not wait. An error ends the
	// stream; Take gets no messages after that.
	Take func(m Message) *streamerr.Error
	// Lost is called with the reason why the stream ends: the client has gone or has broken a rule.
	// Lost may be called more than once, and must not wait.
	Lost func(cause *streamerr.Error)
}

// A Session is a WebSocket with a goroutine that receives its messages. The
// handler calls Close and then Wait.
type Session struct {
	conn    *Conn
	rules   Rules
	unwatch func()

	owned    sync.WaitGroup
	received chan struct{} // closed when no more messages arrive

	fault atomic.Pointer[Fault] // the first
}

// Serve starts the goroutine of a Session, which receives.
func (c *Conn) Serve(r Rules) *Session {
	s := &Session{conn: c, rules: r, received: make(chan struct{})}
	s.owned.Go(func() {
		defer close(s.received)
		s.receive()
	})
	s.unwatch = c.Watch(r.KeepAlive, r.Patience, r.Lost)
	return s
}

// receive takes messages until no more arrive.
func (s *Session) receive() {
	defer func() {
		if v := recover(); v != nil {
			s.rules.Log.Error("panic in a WebSocket", "hop", s.rules.Name, "panic", panicvalue.Text(v), "stack", string(debug.Stack()))
			s.rules.Lost(streamerr.New(streamerr.Internal, "a bug in %s ended this stream; its log has the details", s.rules.Name))
		}
	}()
	for refused := false; ; {
		m, fault := s.conn.Receive()
		switch {
		case fault != nil:
			s.fault.Store(fault)
			s.rules.Lost(fault.Cause)
			return
		case refused: // only a close frame matters now
		default:
			if err := s.rules.Take(m); err != nil {
				refused = true
				s.rules.Lost(err)
			}
		}
	}
}

// Close ends the WebSocket of a stream that has ended for a reason: with a last message, which may
// be empty, and a close frame. cause is why the stream was stopped, or this client is sent away; nil if
// neither. Close returns the code of the close frame, and whether the client has taken it. A client that
// has gone gets neither, and a client that has sent a close frame gets no message.
func (s *Session) Close(last []byte, reason streamerr.Reason, cause error) (code int, told bool) {
	s.unwatch()
	fault := s.fault.Load()
	left := fault != nil && fault.Closed
	code = Code(reason)
	switch {
	case reason == streamerr.ClientGone && !left && (cause == nil || errors.Is(cause, streamerr.ClientGone)): // and not another client
		return code, false
	case fault != nil && fault.Code != 0 && errors.Is(cause, fault.Cause):
		code = fault.Code
	}
	if left {
		last = nil
	}
	return code, s.conn.Close(last, code, reason.String()) == nil
}

// Wait gives the client a short time to answer the close frame, closes the connection, and waits
// for the goroutine of the Session. If the connection were closed at once, the kernel might reset
// it, and the client would lose data that it has not read yet.
func (s *Session) Wait(draining bool) {
	wait := closeWait
	if draining {
		wait = closeWaitDraining
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-s.received:
	case <-late.C:
	}
	s.conn.client.Cut() // ends Receive
	s.owned.Wait()
}
