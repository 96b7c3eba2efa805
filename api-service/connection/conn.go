package connection

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/whence-dev/whence/internal/bigstack"
	"github.com/whence-dev/whence/internal/coarse"
)

const (
	// maxUnread bounds the bytes that have arrived while a handler may read them. Then the client is not
	// read for a while.
	maxUnread = 64 << 10
	// MaxAhead bounds the bytes that a client may send ahead while its request is answered. A client
	// that is further ahead is cut off: if it were not read, its departure would not be noticed either.
	MaxAhead = 256 << 10
	// lingerFor is how long the rest of a refused request is read and dropped. Closing a connection
	// with unread bytes resets the connection, and the reset can overtake the response.
	lingerFor = time.Second
)

// A phase of a Conn decides how it handles its input.
type phase uint8

const (
	handshaking phase = iota // of TLS
	handed                   // the server of HTTP/2 serves the connection
	waiting                  // for a request, or the rest of its header
	answering                // a request is being answered; its handler may read its body
	skipping                 // the rest of a body is dropped
	lingering                // everything is dropped, until the client closes the connection
	over                     // the connection is closed
)

// A Conn is the connection of one client.
type Conn struct {
	// Static.
	server        *Server
	sock          socket
	cipher        *cipher // nil without TLS
	remote, local net.Addr
	leave         func() // of Server.Enter; nil without one
	late          bool   // the connection has one of the last file descriptors
	yield         func() // called when a late connection is closed; nil for others
	timer         coarse.Timer
	ctx           connContext

	mu      sync.Mutex // guards the following fields, and the fields of the request
	phase   phase
	in      []byte   // arrived, not read
	head    head     // of the request for which the Conn waits
	request *request // the last one; nil before the first
	paused  bool     // the input is not watched
	full    bool     // the kernel has not taken everything, and room is watched
	left    bool     // the client has closed the connection, or was cut off
	flooded bool     // the client was cut off, because it was too far ahead
	closing bool     // the output ends when the kernel has taken everything
	hooks   []*func()
	gone    context.Context //nolint:containedctx // canceled when left becomes true; nil until it is needed
	cancel  context.CancelFunc
}

// newConn returns a Conn that has not been entered.
func (s *Server) newConn(sock socket, remote, local net.Addr) *Conn {
	c := &Conn{server: s, sock: sock, remote: remote, local: local, phase: waiting}
	c.ctx.conn = c
	c.timer.Init(s.Clock, c.expire)
	if s.TLS != nil {
		newCipher(c, s.TLS)
	}
	return c
}

// arrived takes input, which is valid until it returns.
func (c *Conn) arrived(b []byte) {
	if c.cipher != nil {
		c.cipher.arrived(b)
	} else {
		c.feed(b)
	}
}

// enterPhase ends the handshake, or returns false if the connection has been closed meanwhile.
func (c *Conn) enterPhase(p phase) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == over {
		return false
	}
	if c.phase = p; p == handed {
		c.timer.Stop()
	} else {
		c.timer.Reset(c.server.Arrival)
	}
	return true
}

// settle closes a connection whose client has left during the handshake, unless it has sent a request
// before.
func (c *Conn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left && c.phase == waiting {
		c.bye()
		c.finish(false)
	}
}

// feed takes plaintext, which is valid until it returns.
func (c *Conn) feed(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase >= lingering {
		return
	}
	if c.phase == waiting && len(c.in) == 0 {
		if b = skipLines(b); len(b) == 0 {
			return
		}
		c.timer.Reset(c.server.Arrival)
	}
	c.in = append(c.in, b...)
	c.advance()
	c.regulate()
}

// skipLines skips empty lines before a request (RFC 9112, section 2.2).
func skipLines(b []byte) []byte {
	for len(b) > 0 && (b[0] == '\r' || b[0] == '\n') {
		b = b[1:]
	}
	return b
}

// advance looks for the next thing to do in the input. mu is held.
func (c *Conn) advance() {
	for {
		switch c.phase {
		case waiting:
			if !c.head.follow(c.in[:min(len(c.in), MaxHeader)]) {
				return
			}
			c.begin()
		case answering:
			c.request.changed.Broadcast()
			return
		case skipping:
			if !c.skip() {
				return
			}
		default:
			c.in = nil
			return
		}
	}
}

// begin begins the answer to a request whose header is complete, or cannot become valid. mu is held.
func (c *Conn) begin() {
	r := &request{conn: c, msg: message{head: c.head}, raw: c.in[:c.head.seen:c.head.seen]}
	r.changed.L = &c.mu
	c.in = append([]byte(nil), c.in[c.head.seen:]...)
	c.head, c.request, c.phase = head{}, r, answering
	bigstack.Go(r.serve)
}

// skip drops the arrived bytes of a body that nobody reads, and returns false if more must arrive. mu is
// held.
func (c *Conn) skip() (done bool) {
	r := c.request
	taken, err := r.skip(c.in)
	c.consume(taken)
	switch {
	case err != nil:
		c.linger()
	case !r.msg.body.Unread():
		c.next()
	default:
		return false
	}
	return true
}

// next waits for the next request. mu is held.
func (c *Conn) next() {
	c.phase, c.request = waiting, nil
	if c.in = skipLines(c.in); len(c.in) == 0 {
		c.in = nil
		c.timer.Reset(c.server.Idle)
	} else {
		c.timer.Reset(c.server.Arrival)
	}
}

// consume drops bytes of the input that have been read. mu is held.
func (c *Conn) consume(n int) {
	if c.in = c.in[n:]; len(c.in) == 0 {
		c.in = nil
	}
}

// regulate watches the input while there is room for it. mu is held.
func (c *Conn) regulate() {
	if c.phase == over || c.left {
		return
	}
	ahead := c.phase == answering && c.request.taken && !c.request.upgraded
	if ahead && len(c.in) > MaxAhead {
		c.flooded = true
		c.leaves()
		c.finish(true)
		return
	}
	unread := len(c.in)
	if c.phase <= handed {
		unread = c.cipher.unread()
	}
	if pause := !ahead && c.phase != lingering && unread >= maxUnread; pause != c.paused {
		c.paused = pause
		c.sock.watch(!c.paused, c.full)
	}
}

// send writes the bytes that the kernel accepts at once. If it does not accept all, it has the writer
// called when there is room. mu is held.
func (c *Conn) send(b []byte) (n int, err error) {
	if c.phase >= lingering {
		return 0, errClosed
	}
	if c.full {
		return 0, nil
	}
	if c.cipher != nil {
		return c.cipher.encrypt(b)
	}
	n, err = c.sock.send(b)
	if err == nil && n < len(b) {
		c.full = true
		c.sock.watch(!c.paused && !c.left, true)
	}
	return n, err
}

// writable has the writer go on.
func (c *Conn) writable() {
	c.mu.Lock()
	if c.phase == over || !c.full {
		c.mu.Unlock()
		return
	}
	room := c.makeRoom()
	c.mu.Unlock()
	if room != nil {
		room()
	}
}

// makeRoom sends the rest of a record, and returns the writer's function for more room. mu is held.
func (c *Conn) makeRoom() (room func()) {
	c.full = false
	c.sock.watch(!c.paused && !c.left, false)
	if c.cipher != nil {
		_ = c.flush() // the next write fails, too
		if c.full {
			return nil
		}
	}
	if c.closing {
		c.closing = false
		c.sock.closeWrite()
	}
	if c.request == nil {
		return nil
	}
	c.request.changed.Broadcast()
	return c.request.room
}

// lost records that the client has closed the connection. An answer may still end: the client may
// have closed only its own direction.
func (c *Conn) lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left || c.phase == over {
		return
	}
	c.leaves()
	switch c.phase {
	case answering:
		c.sock.watch(false, c.full)
		c.request.changed.Broadcast()
	case handshaking, handed: // the input that has arrived is still read
		c.sock.watch(false, c.full)
		c.cipher.end(io.EOF)
	default:
		c.bye()
		c.finish(false)
	}
}

// leaves tells all who wait for the client to leave. mu is held.
func (c *Conn) leaves() {
	c.left = true
	if c.cancel != nil {
		c.cancel()
	}
	for _, f := range c.hooks {
		go (*f)()
	}
	c.hooks = nil
}

// expire is called by the timer.
func (c *Conn) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.phase {
	case waiting:
		if len(c.in) == 0 {
			c.bye()
			c.finish(false)
			return
		}
		c.head.late = true
		c.begin()
	case answering:
		c.request.late = true
		c.request.changed.Broadcast()
	case skipping:
		c.linger()
	default:
		c.finish(false)
	}
}

// ended records that the answer has ended, and the client may send its next request. mu is held.
func (c *Conn) ended() {
	r := c.request
	switch {
	case c.left:
		c.bye()
		c.finish(false)
	case r.last || c.server.draining.Load():
		c.bye()
		c.shut()
	case r.msg.body.Unread():
		c.phase = skipping
		c.timer.Reset(c.server.Arrival)
		c.advance()
	default:
		c.next()
		c.advance()
	}
	c.regulate()
}

// shut closes the connection so that the client can read all that was sent. mu is held.
func (c *Conn) shut() {
	unread := len(c.in) > 0 || c.paused || c.request.msg.body.Unread()
	if c.left || !unread && (c.cipher == nil || !c.cipher.pending()) {
		c.finish(false)
		return
	}
	c.linger()
}

// linger ends the output, and drops the input until the client closes the connection. mu is held.
func (c *Conn) linger() {
	c.phase, c.in = lingering, nil
	if c.closing = c.cipher != nil && c.cipher.pending(); !c.closing {
		c.sock.closeWrite()
	}
	c.timer.Reset(lingerFor)
	c.regulate()
}

// drain closes a connection that waits for a request.
func (c *Conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == handshaking || c.phase == waiting && len(c.in) == 0 {
		c.bye()
		c.finish(false)
	}
}

// bye tells a client of TLS that nothing follows. mu is held.
func (c *Conn) bye() {
	if c.cipher != nil && c.phase > handed && c.phase < lingering {
		_ = c.cipher.tls.CloseWrite() // writes into memory
		_ = c.flush()                 // the connection is closed anyway
	}
}

// close closes the connection at once.
func (c *Conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finish(false)
}

// finish closes the connection, once. With reset, it drops the unread output. mu is held.
func (c *Conn) finish(reset bool) {
	if c.phase == over {
		return
	}
	c.phase, c.in, c.hooks = over, nil, nil
	c.timer.Stop()
	c.sock.close(reset)
	if c.cipher != nil {
		c.cipher.end(errClosed)
	}
	if c.request != nil {
		c.request.changed.Broadcast()
	}
	if c.leave != nil {
		c.leave()
	}
	if c.yield != nil {
		c.yield()
	}
	c.server.forget(c)
}
