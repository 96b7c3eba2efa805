// Package socket keeps the connections of clients, each from when it is accepted until it is
// closed.
//
// A handler of Hertz may call Leave, and return while other goroutines still answer its request.
// Hertz then reuses the memory of the request, and the stream keeps no goroutine. The goroutines
// that answer write to the Socket, and call Free when the answer has ended. The client's next
// request waits for that.
//
// netpoll owns the descriptor. It closes the descriptor when the client closes the connection, but
// not while a handler runs. So a Socket uses the descriptor under a mutex, and is notified before
// netpoll closes it.
package socket

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/network"
	hertznetpoll "github.com/cloudwego/hertz/pkg/network/netpoll"
	"github.com/cloudwego/netpoll"

	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/internal/descriptors"
)

// ProbeEvery is the time between probes of an idle connection, such as the connection of a request
// that waits for its first token. It is also the timeout of a probe.
const ProbeEvery = 10 * time.Second

const (
	// MaxAhead bounds the bytes that a client may send ahead, besides a body, while its request is
	// answered. netpoll reads and keeps whatever arrives, so a client that is further ahead is cut off.
	MaxAhead = 1 << 20
	// maxRefused bounds the part of a refused body that may be here before it is dropped, in bytes.
	maxRefused = 16 << 20
	// lookEvery is the time between looks at a connection that may have bytes ahead. The bound is
	// exceeded by what the network delivers in this time.
	lookEvery = 20 * time.Millisecond
)

// errClosed is the error of using a closed connection.
var errClosed = errors.New("socket: the connection is closed")

// Options are the properties of accepted connections.
type Options struct {
	Silence time.Duration // how long a new connection may send nothing
	Idle    time.Duration // how long a connection may be without a request after an answer
	Unsent  int           // bytes that may wait in the kernel for a slow client before writes block; 0 means the system's limit
	Body    int           // bytes of the largest body, or message of a WebSocket, which may arrive before the handler reads it
	Clock   *coarse.Clock // of the timers
	// Enter counts a connection of a client, or returns false if it must be closed. leave is called when it is closed. nil
	// admits every connection.
	Enter func(client net.Addr) (leave func(), ok bool)
	Late  *descriptors.Brief // the connections that have one of the last file descriptors; nil treats them like others
}

// A Socket is the connection of one client. All methods are safe for concurrent use.
type Socket struct {
	// Static.
	conn   network.Conn
	poll   *hertznetpoll.Conn // conn, if netpoll has accepted it; nil otherwise
	idle   time.Duration
	body   int           // of Options
	timer  *coarse.Timer // calls expire. nil if poll is nil
	leave  func()        // of Options.Enter; nil without one
	yield  func()        // called when a late connection is closed; nil if the connection is not late
	kernel Kernel        // may be used while open; nil if poll is nil

	mu      sync.Mutex      // guards the following fields
	open    bool            // kernel belongs to the connection
	running bool            // a handler runs
	busy    bool            // a request is being answered
	last    bool            // no further request is answered
	waits   bool            // a further request waits for the end of the answer
	watched bool            // a handler runs that may not read what arrives
	room    int             // bytes that the handler, or a refusal, may still read or drop
	flooded bool            // the client was cut off, because it was too far ahead
	freed   chan struct{}   // closed when busy ends; nil if no request waits for that
	left    bool            // the client has closed the connection
	hooks   []*func()       // called when left becomes true
	gone    context.Context //nolint:containedctx // canceled when left becomes true; nil until it is needed
	cancel  context.CancelFunc
}

// Accept prepares a new connection of netpoll. It returns a context with the Socket and ctx's values,
// which is done when the client closes the connection.
func Accept(ctx context.Context, conn net.Conn, o Options) (context.Context, error) {
	outer, ok := conn.(*hertznetpoll.Conn)
	if !ok {
		return ctx, nil
	}
	inner, ok := outer.Conn.(pollConn)
	if !ok {
		return ctx, nil
	}
	kernel, late := kernelOf(inner)
	if kernel == nil {
		return ctx, nil
	}
	s := &Socket{conn: outer, poll: outer, idle: o.Idle, body: o.Body, kernel: kernel, open: true}
	if o.Enter != nil {
		leave, admitted := o.Enter(conn.RemoteAddr())
		if !admitted {
			return ctx, inner.Close()
		}
		s.leave = leave
	}
	s.timer = o.Clock.NewTimer(s.expire)
	if o.Late != nil && late {
		s.yield = o.Late.Enter(s.Close)
	}
	// These never fail.
	_ = inner.AddCloseCallback(s.closed)
	_ = inner.SetOnDisconnect(s.disconnected)
	s.timer.Reset(o.Silence)
	return &connContext{ctx, s}, kernel.Tune(o.Unsent)
}

// A pollConn is a connection of netpoll, or one that behaves like it.
type pollConn interface {
	net.Conn
	AddCloseCallback(f netpoll.CloseCallback) error
	SetOnDisconnect(f netpoll.OnDisconnect) error
}

// A Kernel makes the calls for one connection that netpoll does not make. It is the kernel of a file
// descriptor, unless the connection is a Kernel itself, such as a connection in memory.
type Kernel interface {
	// Tune sets the options of a new connection. unsent is the number of bytes that may wait in the
	// kernel for a slow client before writes block, besides the bytes in flight; 0 means the system's
	// limit.
	Tune(unsent int) error
	// Send writes the bytes that the kernel accepts at once, and returns their number: 0 if the client
	// reads too slowly.
	Send(b []byte) (n int, err error)
	// Acknowledged reports whether the client's machine has acknowledged all data sent to it, and how
	// long ago it last acknowledged any. A client that does not read still acknowledges.
	Acknowledged() (all bool, ago time.Duration, err error)
	// ResetOnClose makes the next close of the connection reset it.
	ResetOnClose()
	// CutOff resets a connection that may still be used: both sides find it closed, and the kernel
	// takes nothing more from the client.
	CutOff()
}

// kernelOf returns the Kernel of a connection, or nil if it has none. late reports that the
// connection has one of the last file descriptors.
func kernelOf(conn pollConn) (kernel Kernel, late bool) {
	switch conn := conn.(type) {
	case Kernel:
		return conn, false
	case netpoll.Conn:
		return descriptor(conn.Fd()), descriptors.Late(conn.Fd())
	default:
		return nil, false
	}
}

// A descriptor is the Kernel of a connection with a file descriptor.
type descriptor int

// expire is called by the timer. It closes a connection that has no request; a request that arrives
// at the same time is not served. It cuts off a client that is too far ahead.
func (s *Socket) expire() {
	s.mu.Lock()
	expired := !s.running && !s.busy
	s.last = s.last || expired
	if !expired && s.open {
		s.look()
	}
	s.mu.Unlock()
	if expired {
		_ = s.conn.Close() // netpoll's Close never fails
	}
}

// look looks at the bytes that the client has sent ahead. mu is held.
func (s *Socket) look() {
	allowed := MaxAhead
	switch {
	case s.watched:
		allowed += s.room
	case !s.waits:
		return
	}
	if s.conn.Len() <= allowed {
		s.timer.Reset(lookEvery)
		return
	}
	s.flooded, s.last = true, true
	s.kernel.CutOff() // for netpoll, the client has then closed the connection
}

// closed is called before netpoll closes the descriptor.
func (s *Socket) closed(netpoll.Connection) error {
	s.mu.Lock()
	s.open = false
	s.mu.Unlock()
	s.timer.Stop()
	if s.leave != nil {
		s.leave()
	}
	if s.yield != nil {
		s.yield()
	}
	return nil
}

// Late reports whether the connection has one of the last file descriptors: only probes are answered.
func (s *Socket) Late() bool { return s.yield != nil }

// Of returns the Socket of the connection of c. For a connection without Accept, the Socket has no
// descriptor, and its handlers cannot leave.
func Of(c *app.RequestContext) *Socket {
	if h, ok := c.GetConn().(*hertzConn); ok {
		return h.socket
	}
	return &Socket{conn: c.GetConn()}
}

// Direct reports whether Send works on this connection.
func (s *Socket) Direct() bool { return s.poll != nil }

// Send is that of the Kernel.
func (s *Socket) Send(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		return 0, errClosed
	}
	return s.kernel.Send(b)
}

// Write writes b, and waits until the client has taken it. Writes must not be concurrent.
func (s *Socket) Write(b []byte) error {
	if s.poll != nil {
		_, err := s.poll.Write(b) // netpoll frees no buffer meanwhile
		return err
	}
	_, err := s.conn.WriteBinary(b)
	if err == nil {
		err = s.conn.Flush()
	}
	return err
}

// SetWriteTimeout bounds later writes of Write and of Hertz; 0 means no bound.
func (s *Socket) SetWriteTimeout(d time.Duration) { _ = s.conn.SetWriteTimeout(d) } // netpoll's SetWriteTimeout never fails

// Acknowledged is that of the Kernel.
func (s *Socket) Acknowledged() (all bool, ago time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		return false, 0, errClosed
	}
	return s.kernel.Acknowledged()
}

// Reset closes the connection, and drops the data that the client has not read. A TLS front before the
// edge notices at once.
func (s *Socket) Reset() {
	s.mu.Lock()
	if s.open {
		s.kernel.ResetOnClose()
	}
	s.mu.Unlock()
	s.Close()
}

// Close closes the connection.
func (s *Socket) Close() {
	s.finish()
	_ = s.conn.Close() // netpoll's Close never fails
}

// finish makes the current request the last one.
func (s *Socket) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = true
}

// Take records that an answer begins.
func (s *Socket) Take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = true
}

// Free records that an answer has ended. last means that the connection serves no further request:
// if the handler has left, Free closes the connection, otherwise Hertz closes it.
func (s *Socket) Free(last bool) {
	s.mu.Lock()
	s.busy = false
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
	s.last = s.last || last
	ends := s.last && !s.running && s.poll != nil
	s.rest()
	s.mu.Unlock()
	if ends {
		s.Close()
	}
}

// rest starts the idle timeout of a connection without a handler and without an answer. mu is held.
func (s *Socket) rest() {
	if s.open && !s.running && !s.busy && !s.last {
		s.timer.Reset(s.idle)
	}
}
