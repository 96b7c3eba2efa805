package mux

import (
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"

	"github.com/whence-dev/whence/internal/nowait"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// An Opener handles the streams that the peer opens. A connection without an Opener opens streams.
type Opener interface {
	// Open prepares s for a call, and returns the function that serves the call on a goroutine of
	// its own. Open runs on the goroutine that reads the connection. serve, or another goroutine
	// later, must call returned once, when the call needs no more resources.
	Open(call frame.Call, s *Stream) (serve func(returned func()))
}

// A Conn is one connection, after its HELLOs.
type Conn struct {
	// Static.
	net   net.Conn
	sock  nowait.ReadWriter // nil if writes may block
	opts  Options
	peer  frame.Greeting
	serve Opener // nil on the end that opens streams
	done  chan struct{}
	owned sync.WaitGroup // the connection's goroutines

	served sync.WaitGroup // the calls that are being served; a call may outlast its handler

	heard  atomic.Bool   // bytes have been read since the last check
	lost   atomic.Bool   // the connection broke, or was closed
	writer chan struct{} // capacity 1: rest must be written
	doubt  chan struct{} // capacity 1: a caller doubts that the peer is alive

	mu      sync.Mutex // guards the following fields
	out     output
	streams map[uint32]*Stream
	last    uint32 // the number of the newest stream
	serving int    // the number of calls that are being served
	leaving bool   // no more streams are opened, because the peer sent a GOAWAY
	err     error  // why the connection is over; nil while it is open
	idle    func() // called without mu when leaving is set and the last stream has ended; may be nil
}

// New returns the end of a connection on which both HELLOs have been exchanged. Start runs it.
func New(nc net.Conn, peer frame.Greeting, serve Opener, o Options) *Conn {
	c := &Conn{
		net: nc, sock: nowait.New(nc), opts: o, peer: peer, serve: serve,
		done: make(chan struct{}), writer: make(chan struct{}, 1), doubt: make(chan struct{}, 1), streams: map[uint32]*Stream{},
	}
	c.out.closeItems()
	return c
}

// Start runs the connection. buffered are the bytes that were read after the HELLO.
func (c *Conn) Start(buffered []byte) {
	c.owned.Go(newConnReader(c, buffered).run)
	c.owned.Go(c.writeRest)
	c.owned.Go(c.ping)
}

// Done returns a channel that is closed when the connection is over.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Lost reports whether the connection is over.
func (c *Conn) Lost() bool { return c.lost.Load() }

// OnIdle registers f, which is called when the peer accepts no more streams and the last stream has
// ended. OnIdle must be called before Start.
func (c *Conn) OnIdle(f func()) { c.idle = f }

// Goaway asks the peer to open no more streams.
func (c *Conn) Goaway(text string) {
	c.control(func(b []byte) []byte { return frame.AppendGoaway(b, text) })
}

// Flush writes the bytes that wait for the first message of a stream, or for the end of a batch.
func (c *Conn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.later = false
	c.flush()
}

// Close ends the connection because of err, and returns when its goroutines have ended.
func (c *Conn) Close(err error) {
	c.Fail(err)
	c.owned.Wait()
	c.served.Wait()
}

// Fail ends the connection and its streams. Only the first error has an effect.
func (c *Conn) Fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	c.lost.Store(true)
	close(c.done)
	streams := c.streams
	c.streams = nil
	blocked := c.out.blocked
	c.out.blocked = nil
	if c.out.timer != nil {
		c.out.timer.Stop()
	}
	for _, s := range blocked {
		s.room.open()
	}
	c.mu.Unlock()
	_ = c.net.Close()
	for _, s := range streams {
		s.broke(err)
	}
}

// stream returns the stream of a received frame, or nil if the stream has ended on this end.
func (c *Conn) stream(id uint32) (*Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		return s, nil
	}
	if id > c.last {
		return nil, fmt.Errorf("%w: a frame of stream %d, which was not opened", ErrProtocol, id)
	}
	return nil, nil
}

// takeLast handles a CLOSE or a RESET of the caller.
func (c *Conn) takeLast(f frame.Frame) error {
	id, err := frame.ParseStream(f)
	if err != nil {
		return err
	}
	s, err := c.stream(id)
	switch {
	case s == nil:
		return err
	case c.serve == nil:
		return fmt.Errorf("%w: a %v of the callee", ErrProtocol, f.Kind)
	case f.Kind == frame.Close:
		s.in.End(io.EOF)
	default:
		s.reset()
	}
	return nil
}

// takeEnd handles the END of a stream that this end opened.
func (c *Conn) takeEnd(payload []byte) error {
	e, err := frame.ParseEnd(payload)
	if err != nil {
		return err
	}
	s, err := c.stream(e.Stream)
	switch {
	case s == nil:
		return err
	case c.serve != nil:
		return fmt.Errorf("%w: an END of the caller", ErrProtocol)
	}
	c.forget(s)
	s.ended(e)
	return nil
}

func (c *Conn) takeCredit(payload []byte) error {
	id, n, err := frame.ParseCredit(payload)
	if err != nil {
		return err
	}
	s, err := c.stream(id)
	if s == nil {
		return err
	}
	c.mu.Lock()
	s.credit += n
	more := s.credit > c.peer.Window
	s.room.open()
	c.mu.Unlock()
	if more {
		return fmt.Errorf("%w: more credit than was used", ErrProtocol)
	}
	return nil
}

// Open opens a stream with call, and sets call's number. It returns ok false if the connection
// accepts no more streams.
func (c *Conn) Open(call frame.Call) (s *Stream, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.leaving {
		return nil, false, nil
	}
	call.Stream = c.last + 1
	c.out.closeItems()
	bytes, fits := frame.AppendOpen(c.out.bytes, call)
	if !fits {
		return nil, true, errHeaders
	}
	c.out.bytes, c.last = bytes, call.Stream
	c.leaving = c.leaving || c.last == math.MaxUint32 // no number is left; the pool dials another connection
	s = newStream(c, call.Stream)
	c.streams[call.Stream] = s
	return s, true, nil // the request follows at once, and shares the write
}

// forget removes a stream that has ended on this end.
func (c *Conn) forget(s *Stream) {
	c.mu.Lock()
	if c.streams[s.id] == s {
		delete(c.streams, s.id)
	}
	c.out.forget(s)
	c.unblock() // senders may wait for the large message that was dropped
	idle := c.idleNow()
	c.mu.Unlock()
	if idle != nil {
		idle()
	}
}

// idleNow returns idle if it is due, or nil. It is not due before all frames have been written,
// such as the RESET of the last stream. The caller holds mu.
func (c *Conn) idleNow() func() {
	if !c.leaving || len(c.streams) > 0 || c.err != nil || c.out.writing || !c.out.empty() {
		return nil
	}
	return c.idle
}

// leave records that the peer accepts no more streams.
func (c *Conn) leave() {
	c.mu.Lock()
	c.leaving = true
	idle := c.idleNow()
	c.mu.Unlock()
	if idle != nil {
		idle()
	}
}

// Load returns the number of streams of the connection, and whether it accepts more.
func (c *Conn) Load() (streams int, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams), c.err == nil && !c.leaving
}
