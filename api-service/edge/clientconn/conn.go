// Package clientconn owns the connection of a client while one request of that client is answered.
//
// The whole answer is written through a Conn, while the handler of the request runs or after the handler has
// left (package socket). Write never blocks: it makes one system call on the goroutine that has the token, and buffers the bytes that
// the kernel does not take. Flush writes the buffer and blocks until it is empty. Three goroutines
// call Flush: the handler in Serve, the goroutine that drives a stream with backpressure from its
// client, and the timer for the headers and comments that it has written itself.
//
// Kill resets the connection, which ends a Flush at once. So a stop, a deadline or a drain waits for
// a client for 250 ms at most: the client of a stopped stream that has not emptied the buffer by
// then is killed, even if it reads a piece now and then.
//
// Each connection has one timer, which shares wake-ups with the timers of other connections. It is
// armed for the duty that is due first, and set again only when it fires, or when another duty is due
// earlier: a token does not touch it. The timer sends the headers
// of a stream without tokens, comments in silence, finds clients that do not read or have vanished
// without a word, and ends writes that wait for too long. The rules are in clock, a pure state
// machine.
package clientconn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/whence-dev/whence/api-service/edge/socket"
	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Client is the name of the client in paths.
const Client = "client"

const (
	// maxBehind bounds what a client may leave behind, in bytes beside one item and the kernel's
	// buffer. Past it the client is too slow.
	maxBehind = 256 << 10
	// piece is how many bytes Flush hands to the kernel at a time. The write timeout is that of a
	// piece.
	piece = 8 << 10
)

// A Conn is a client's connection during one request. All methods are safe for concurrent use, but
// those of the handler.
type Conn struct {
	// Static.
	socket       *socket.Socket
	began        time.Time
	behindWaits  chan struct{} // capacity 1: something is behind, for Serve
	writeTimeout time.Duration
	left         func(cause *streamerr.Error) // learns why the client counts as gone
	undo         []func() bool                // of EndWith
	identity     bool                         // the body has no chunks
	last         bool                         // the client wants no further answer on the connection

	flushing sync.Mutex // held while Flush writes; taken before mu

	mu       sync.Mutex // guards the following fields
	clock    clock
	timer    *coarse.Timer // nil until Bound
	armed    time.Duration // when timer fires; never if it does not
	streams  int           // calls of EndWith
	events   *Events       // of an answer that is server-sent events; nil before Begin
	sent     func(at time.Duration, events int)
	response *protocol.Response // the answer, until it is sent; nil then
	own      bool               // response is not that of the handler's request
	opened   bool               // the headers of the events are sent
	behind   []byte             // not taken by the client yet. While there is any, Flush alone writes
	late     int                // events in behind that are counted when they are written
	written  int64              // bytes of the answer, behind included
	taken    int64              // bytes of the answer that the kernel has accepted
	reached  marks
	gone     *streamerr.Error
	released bool // the handler is about to return, and the connection may serve another request
}

// Take takes over the connection of c for one request. The handler calls Bound next, and GiveBack
// before it returns.
func Take(c *app.RequestContext) *Conn {
	old := !c.Request.Header.IsHTTP11()
	client := &Conn{
		socket: socket.Of(c), began: time.Now(), behindWaits: make(chan struct{}, 1), left: func(*streamerr.Error) {},
		clock: newClock(0, 0), armed: never, identity: old, last: old || c.Request.Header.ConnectionClose(), response: &c.Response,
	}
	client.socket.Take()
	return client
}

// Detach makes the Conn independent of c, which Take was called with: the handler may leave (package
// socket), and GiveBack is then called when the answer has ended. The answer has the headers that c
// has now.
func (c *Conn) Detach(from *app.RequestContext) {
	own := protocol.AcquireResponse()
	from.Response.Header.CopyTo(&own.Header)
	from.Response.HijackWriter(closedWriter{})
	if c.last {
		from.SetConnectionClose()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.response, c.own = own, true
}

// Bounds are how long a client is waited for; 0 is no bound.
type Bounds struct {
	Write  time.Duration // for a part of the answer that waits for the client
	Client time.Duration // for an acknowledgement of the client's machine
	Clock  *coarse.Clock // of the timer; nil for a Clock of its own
}

// Bound bounds how long the client is waited for. left is called, possibly more than once, with the
// reason why the client counts as gone: it does not read, or has vanished, or its connection is
// broken. It is called once, before all writes.
func (c *Conn) Bound(b Bounds, left func(cause *streamerr.Error)) {
	if !c.socket.Direct() {
		b.Client = 0 // it cannot be measured
	}
	c.socket.SetWriteTimeout(0) // the timer of the Conn bounds writes
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.writeTimeout = left, b.Write
	c.clock = newClock(b.Write, b.Client)
	if b.Clock == nil {
		b.Clock = new(coarse.Clock)
	}
	c.timer = b.Clock.NewTimer(c.tick)
	c.arm(c.now())
}

// now returns the time since the connection was taken.
func (c *Conn) now() time.Duration { return time.Since(c.began) }

// EndWith bounds how long writes wait for the client once the stream of ctx is stopped. What has
// waited since before the stop waits until ctx is done at most. A connection with several streams,
// one after another, calls it for each of them, on the goroutine that calls GiveBack.
func (c *Conn) EndWith(ctx context.Context) {
	for _, undo := range c.undo {
		undo()
	}
	c.mu.Lock()
	c.streams++
	n := c.streams
	c.clock.resume()
	c.mu.Unlock()
	c.undo = []func() bool{
		stream.AfterStop(ctx, func(error) { c.tell(n, (*clock).stop) }),
		stream.AfterKill(ctx, func() { c.tell(n, func(k *clock, _ time.Duration) { k.end() }) }),
	}
}

// tell tells the clock something about the n-th stream that may make a write due earlier.
func (c *Conn) tell(n int, what func(*clock, time.Duration)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n != c.streams {
		return // the connection has another stream by now
	}
	now := c.now()
	what(&c.clock, now)
	c.arm(now)
}

// Write sends b without waiting, behind the headers if it is the first of the events. events is how
// many events in it are to be counted as sent. waits says that the client has not taken all of it:
// the rest is written by Flush. With too much behind, the client is too slow. Errors are
// *streamerr.Error, and final.
func (c *Conn) Write(b []byte, events int) (waits bool, err error) {
	return c.WriteMarked(b, events, Mark{})
}

// WriteMarked is Write for bytes with which the client reaches an extent of the answer.
func (c *Conn) WriteMarked(b []byte, events int, m Mark) (waits bool, err error) {
	c.mu.Lock()
	before := c.gone
	gone := c.write(b, events, m, c.now())
	waits = len(c.behind) > 0
	c.mu.Unlock()
	if gone == nil {
		return waits, nil
	}
	if gone != before {
		c.left(gone)
	}
	return false, gone
}

// write is Write. mu is held.
func (c *Conn) write(b []byte, events int, m Mark, now time.Duration) *streamerr.Error {
	if c.gone != nil || c.released {
		return c.why()
	}
	c.clock.wrote = now
	if c.events != nil && !c.opened {
		head := c.open()
		m.At += len(head)
		b = append(head, b...)
		c.arm(now) // the first comment may be due before the headers were
	}
	c.reached.add(m, c.written, len(b))
	c.written += int64(len(b))
	n := 0
	if len(c.behind) == 0 && c.socket.Direct() {
		var err error
		if n, err = c.socket.Send(b); err != nil {
			c.fail(broken(err))
			return c.gone
		}
		c.taken += int64(n)
		if n == len(b) {
			c.count(now, events)
			return nil
		}
	}
	if len(c.behind) == 0 {
		c.clock.blocked(now)
		c.arm(now)
	} else if len(c.behind)+len(b)-n > maxBehind {
		c.fail(&streamerr.Error{Reason: streamerr.SlowReader, Message: fmt.Sprintf("the client is more than %d bytes behind", maxBehind)})
		return c.gone
	}
	c.behind = append(c.behind, b[n:]...)
	c.late += events
	select {
	case c.behindWaits <- struct{}{}:
	default: // known already
	}
	return nil
}

// count reports events that were written. mu is held.
func (c *Conn) count(now time.Duration, events int) {
	if events > 0 && c.sent != nil {
		c.sent(now, events)
	}
}

// Flush waits until the client has taken all that was written. Errors are *streamerr.Error, and
// final.
func (c *Conn) Flush() error {
	failed, err := c.flush()
	if failed {
		c.left(streamerr.As(err))
	}
	return err
}

// flush is Flush. failed says that its own write has failed, not one before.
func (c *Conn) flush() (failed bool, err error) {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	for {
		c.mu.Lock()
		if c.gone != nil || c.released {
			defer c.mu.Unlock()
			return false, c.why()
		}
		out := c.behind[:min(len(c.behind), piece)]
		c.mu.Unlock()
		if len(out) == 0 {
			return false, nil
		}
		err := c.socket.Write(out)
		if failed, gone := c.flushed(len(out), err); gone != nil {
			return failed, gone
		}
	}
}

// flushed records that the kernel has taken n of the pending bytes, or that the write failed with err. failed says that the
// client counts as gone for that reason.
func (c *Conn) flushed(n int, err error) (failed bool, gone *streamerr.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	switch {
	case c.gone != nil: // the pending bytes were dropped while they were written, and left is told
		return false, c.gone
	case err != nil:
		c.fail(broken(err))
		return true, c.gone
	}
	c.behind = c.behind[n:]
	c.taken += int64(n)
	if len(c.behind) > 0 {
		c.clock.blocked(now) // the next piece has a time of its own
		c.arm(now)
		return false, nil
	}
	c.behind = nil
	c.clock.settled()
	c.arm(now)
	c.count(now, c.late)
	c.late = 0
	return false, nil
}

// Serve writes what the client does not take at once, until done is closed, ctx is done, or the
// client counts as gone. It is for the handler, while another goroutine writes.
func (c *Conn) Serve(ctx context.Context, done <-chan struct{}) {
	for {
		select {
		case <-c.behindWaits:
			if c.Flush() != nil {
				return
			}
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Kill resets the connection. A write that waits for the client fails at once, and so does every later one.
func (c *Conn) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.fail(Gone())
	}
}

// fail resets the connection of a client that counts as gone. mu is held.
func (c *Conn) fail(gone *streamerr.Error) {
	c.gone = gone
	c.behind = nil
	c.stopTimer()
	if c.released {
		return
	}
	c.socket.Reset()
}

// Failure returns why the client counts as gone, or nil while it does not. It is set before the connection is
// closed for that reason.
func (c *Conn) Failure() *streamerr.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// why is the error of a write that comes too late. mu is held.
func (c *Conn) why() *streamerr.Error {
	if c.gone != nil {
		return c.gone
	}
	return Gone()
}

// Cut closes the connection without a complete answer: a body without its end is never a clean end.
func (c *Conn) Cut() { c.socket.Close() }

// GiveBack gives the connection back to the server. It waits until no Flush writes, and cuts the
// answer if a part of it is still behind.
func (c *Conn) GiveBack() {
	for _, undo := range c.undo {
		undo()
	}
	c.mu.Lock()
	incomplete := len(c.behind) > 0
	c.mu.Unlock()
	if incomplete {
		c.Cut() // which ends a Flush
	}
	c.flushing.Lock()
	defer c.flushing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = true
	c.stopTimer()
	c.answered()
	c.socket.SetWriteTimeout(c.writeTimeout)
	c.socket.Free(c.last)
}

// answered frees the response, which was sent or is not needed any more. mu is held.
func (c *Conn) answered() {
	if c.own {
		protocol.ReleaseResponse(c.response)
	}
	c.response, c.own = nil, false
}

// Gone is the ending of a stream whose client has closed its connection.
func Gone() *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(Client), Message: "the client closed its connection"}
}

// broken is the ending of a stream when a write to its client has failed with err.
func broken(err error) *streamerr.Error {
	gone := Gone()
	gone.Cause = err
	return gone
}
