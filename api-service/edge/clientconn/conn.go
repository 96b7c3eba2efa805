// Package clientconn owns the connection of a client while one request of that client is answered.
//
// The whole answer is written through a Conn, while the handler of the request runs or after it has
// returned. Write never blocks: it makes one system call on the goroutine that carries the token, and
// buffers the bytes that the kernel does not accept. The connection writes them when the kernel has
// room. Flush waits until the buffer is empty: the goroutine that drives a stream with backpressure
// from its client calls it.
//
// Kill resets the connection, which ends a Flush at once. So a write of a stopped stream waits for
// its client for 250 ms at most: a client that has not emptied the buffer by then is killed, even if
// it reads a little now and then. After the grace of the stop, two writes may be left: the message in
// hand, and the ending.
//
// Each connection has one timer, which shares wake-ups with the timers of other connections. The
// timer is armed for the duty that is due first, and is set again only when it fires or when
// another duty is due earlier: a token does not touch the timer. The timer sends the headers of a
// stream without tokens, sends comments in silence, detects clients that do not read or have
// vanished silently, and ends writes that wait for too long. The rules are in clock, a pure state
// machine.
package clientconn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Client is the name of the client in paths.
const Client = "client"

const (
	// maxBehind bounds the bytes that wait for the client, besides one item and the kernel's
	// buffer. A client that is further behind is too slow.
	maxBehind = 256 << 10
	// piece is the number of bytes that the kernel must take within the write timeout.
	piece = 8 << 10
)

// A Conn is a client's connection during one request. All methods are safe for concurrent use,
// except those that are only for the handler.
type Conn struct {
	// Static.
	exchange     connection.Exchange
	began        time.Time
	writeTimeout time.Duration
	left         func(cause *streamerr.Error) // called with the reason why the client counts as gone
	undo         []func() bool                // undoes EndWith
	identity     bool                         // the body has no chunks

	settled sync.Cond // with mu: behind has become empty, or the answer has ended

	mu       sync.Mutex // guards the following fields
	clock    clock
	timer    *coarse.Timer // nil until Bound
	armed    time.Duration // when timer fires; never if it is not set
	streams  int           // calls of EndWith
	events   *Events       // for server-sent events; nil before Begin
	sent     func(at time.Duration, events int)
	response *protocol.Response // the answer; nil once it is sent
	own      bool               // response is a copy, not the response of the handler's request
	opened   bool               // the headers of the events are sent
	broken   bool               // the body has no end
	patient  bool               // the client of the broken answer is a browser
	behind   []byte             // not taken by the client yet; while it is not empty, only refill writes
	progress int                // bytes of behind that were taken since the write timeout began
	late     int                // events in behind, which count when they are written
	written  int64              // bytes of the answer, behind included
	taken    int64              // bytes of the answer that the kernel has accepted
	reached  marks
	gone     *streamerr.Error
	released bool // the handler is about to return, and the connection may serve another request
}

// Take takes over the answer to a request. The handler calls Bound next. GiveBack is called when the
// answer has ended.
func Take(c *app.RequestContext) *Conn {
	client := &Conn{
		exchange: connection.Of(c), began: time.Now(), left: func(*streamerr.Error) {},
		clock: newClock(0, 0), armed: never, response: &c.Response,
	}
	client.identity = client.exchange.Identity()
	client.settled.L = &client.mu
	client.exchange.Take(client.refill)
	return client
}

// Detach makes the Conn independent of the RequestContext that Take was called with, so that the
// handler may return before the answer has ended. The answer has the headers that the RequestContext
// has now.
func (c *Conn) Detach(from *app.RequestContext) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.response != nil { // the timer may have sent the headers already
		c.response, c.own = protocol.AcquireResponse(), true
		from.Response.Header.CopyTo(&c.response.Header)
	}
}

// Bounds are how long the Conn waits for a client; 0 means no bound.
type Bounds struct {
	Write  time.Duration // for a write that waits for the client
	Client time.Duration // for an acknowledgement of the client's machine
	Clock  *coarse.Clock // of the timer; nil means a Clock of its own
}

// Bound sets how long the Conn waits for the client. left is called, possibly more than once, with
// the reason why the client counts as gone: it does not read, has vanished, or its connection is
// broken. Bound is called once, before all writes.
func (c *Conn) Bound(b Bounds, left func(cause *streamerr.Error)) {
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

// EndWith bounds how long writes wait for the client once the stream of ctx is stopped. Bytes that
// have waited since before the stop wait until ctx is done at most. A connection with several
// streams calls EndWith for each of them in turn, on the goroutine that calls GiveBack.
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

// tell passes an event of the n-th stream to the clock. The event may make a write due earlier.
func (c *Conn) tell(n int, what func(*clock, time.Duration)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n != c.streams {
		return // the connection already has another stream
	}
	now := c.now()
	what(&c.clock, now)
	c.arm(now)
}

// Write sends b without blocking, after the headers if b is the first of the events. events is the
// number of events in b that count as sent. waits reports that the client has not taken all of b:
// the rest is written later. With too much behind, the client is too slow. Errors are *streamerr.Error,
// and final.
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
		head := heads.Get().(*[]byte) //nolint:forcetypeassert // the pool has nothing else
		defer heads.Put(head)
		*head = c.open((*head)[:0])
		m.At += len(*head)
		*head = append(*head, b...)
		b = *head
		c.arm(now) // the first comment may be due before the headers were
	}
	c.reached.add(m, c.written, len(b))
	c.written += int64(len(b))
	n := 0
	if len(c.behind) == 0 {
		var err error
		if n, err = c.exchange.Send(b); err != nil {
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
		c.progress = 0
		c.clock.blocked(now)
		c.arm(now)
	} else if len(c.behind)+len(b)-n > maxBehind {
		c.fail(&streamerr.Error{Reason: streamerr.SlowReader, Message: fmt.Sprintf("the client is more than %d bytes behind", maxBehind)})
		return c.gone
	}
	c.behind = append(c.behind, b[n:]...)
	c.late += events
	return nil
}

// count reports events that were written. mu is held.
func (c *Conn) count(now time.Duration, events int) {
	if events > 0 && c.sent != nil {
		c.sent(now, events)
	}
}

// Kill resets the connection. A write that waits for the client fails at once, and so does every
// later write.
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
	c.settled.Broadcast()
	c.stopTimer()
	if c.released {
		return
	}
	c.exchange.Reset()
}

// Failure returns why the client counts as gone, or nil. It is set before the connection is closed.
func (c *Conn) Failure() *streamerr.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// why returns the error of a write after the end. mu is held.
func (c *Conn) why() *streamerr.Error {
	if c.gone != nil {
		return c.gone
	}
	return Gone()
}

// Cut closes the connection before the answer is complete: a body without its end is never a clean
// end.
func (c *Conn) Cut() { c.exchange.Cut() }

// patience is how long GiveBack of a broken answer waits for a browser to close the connection.
const patience = 2 * time.Second

// Break marks the answer as broken: its body has no end, and GiveBack closes the connection. A
// browser drops what its page has not read yet when a body breaks, so GiveBack first waits for it to
// close the connection.
func (c *Conn) Break(browser bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken, c.patient = true, browser
}

// GiveBack gives the connection back to the server. It cuts the answer if it is broken, or a part of it
// is still behind.
func (c *Conn) GiveBack() {
	for _, undo := range c.undo {
		undo()
	}
	c.mu.Lock()
	incomplete, waits := c.broken || len(c.behind) > 0, c.patient && c.gone == nil
	c.mu.Unlock()
	if waits {
		c.exchange.AwaitLeft(patience)
	}
	if incomplete {
		c.Cut()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = true
	c.settled.Broadcast()
	c.stopTimer()
	c.answered()
	c.exchange.Free(c.identity)
}

// answered releases the response, which was sent or is no longer needed. mu is held.
func (c *Conn) answered() {
	if c.own {
		protocol.ReleaseResponse(c.response)
	}
	c.response, c.own = nil, false
}

// Gone returns the ending of a stream whose client has closed its connection.
func Gone() *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(Client), Message: "the client closed its connection"}
}

// Left returns the ending of a stream whose client has left conn, the context of its connection.
func Left(conn context.Context) *streamerr.Error {
	gone := Gone()
	if connection.Flooded(conn) {
		gone.Message = fmt.Sprintf("the client sent more than %d bytes before its answer had ended, so its connection was closed", connection.MaxAhead)
	}
	return gone
}

// broken returns the ending of a stream when a write to its client has failed with err.
func broken(err error) *streamerr.Error {
	gone := Gone()
	gone.Cause = err
	return gone
}
