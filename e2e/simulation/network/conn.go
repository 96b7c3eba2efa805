package network

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/whence-dev/whence/internal/nowait"
)

// buffer bounds the bytes of one direction of a link's connection that the receiver has not read, like
// the buffers of the two kernels.
const buffer = 8 << 10

// A conn is one TCP connection between two hosts.
type conn struct {
	net    *Network
	path   *path // between the two addresses
	caller *end
	callee *end
	tap    *tap      // nil for a connection of a client
	asked  time.Time // when the caller began to dial; zero for a connection of a client
	made   time.Time // when the dial ended

	mu     sync.Mutex // guards the following fields, and those of both ends
	broken bool       // bytes that are sent from now on are lost
}

// An end is one end of a conn. It implements net.Conn and nowait.Direct.
type end struct {
	conn *conn
	host *Host
	peer *end
	id   uint64 // of this end's direction: the bytes that it sends
	room int    // bytes that this end may leave unread

	// Guarded by conn.mu.
	unread    []segment // sent by the peer, in order
	size      int       // bytes of unread
	last      time.Time // arrival of the last segment
	over      bool      // the peer has closed; overAt is when this end learns it
	overAt    time.Time
	failed    error // what Read and Write return: the connection has broken, and this end knows
	failedAt  time.Time
	closed    bool
	resets    bool      // Close resets the connection
	dropped   time.Time // when this end first sent bytes that were lost; zero if it did not
	readBy    time.Time
	writeBy   time.Time
	transfers int           // reads and writes so far, which draw the lengths of short ones
	full      time.Time     // since when a write waits for room; zero if none does
	longest   time.Duration // wait for room

	readable chan struct{} // capacity 1: something has changed for the reader
	writable chan struct{} // capacity 1: something has changed for the writer
}

var (
	_ net.Conn      = (*end)(nil)
	_ nowait.Direct = (*end)(nil)
)

// A segment is the bytes of one write.
type segment struct {
	due  time.Time // of the arrival, if nothing is stalled
	data []byte
}

// newConn returns a connection from a host to another, without a tap.
func newConn(from, to *Host, serial int) *conn {
	c := &conn{net: from.net, path: from.net.path(from.name, to.name)}
	newEnd := func(h *Host, direction uint64) *end {
		return &end{
			conn: c, host: h, room: buffer, id: hash(from.name+">"+to.name)<<20 ^ uint64(serial)<<4 ^ direction,
			readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
		}
	}
	c.caller, c.callee = newEnd(from, 1), newEnd(to, 2)
	c.caller.peer, c.callee.peer = c.callee, c.caller
	return c
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// NoWait implements nowait.Direct.
func (e *end) NoWait() nowait.ReadWriter { return direct{e} }

// direct reads an end, and writes what fits into its buffer.
type direct struct{ end *end }

// Read implements nowait.ReadWriter.
func (d direct) Read(b []byte) (n int, err error) { return d.end.Read(b) }

// Write implements nowait.ReadWriter.
func (d direct) Write(b []byte) (n int, err error) {
	c := d.end.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	return d.end.send(b)
}

// Read implements net.Conn. It waits for the arrival of at least one byte.
func (e *end) Read(b []byte) (n int, err error) {
	for {
		e.conn.mu.Lock()
		n, wait, err := e.receive(b)
		if n > 0 {
			e.conn.tap.read(e, b[:n])
		}
		e.conn.mu.Unlock()
		if n > 0 || err != nil {
			wake(e.peer.writable)
			return n, err
		}
		if wait <= 0 {
			<-e.readable
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-e.readable:
			timer.Stop()
		}
	}
}

// receive takes bytes that have arrived. Without any it returns how long the next ones take, or 0 if
// none are on their way. The caller holds mu.
func (e *end) receive(b []byte) (n int, wait time.Duration, err error) {
	now := time.Now()
	switch {
	case e.closed:
		return 0, 0, net.ErrClosed
	case !e.readBy.IsZero() && !now.Before(e.readBy):
		return 0, 0, os.ErrDeadlineExceeded
	case len(e.unread) > 0:
		at := e.conn.arrival(e.unread[0].due)
		if wait = at.Sub(now); wait > 0 {
			break
		}
		n = copy(b[:e.short(len(b))], e.unread[0].data)
		if e.size -= n; n == len(e.unread[0].data) {
			e.unread = e.unread[1:]
		} else {
			e.unread[0].data = e.unread[0].data[n:]
		}
		return n, 0, nil
	case e.failed != nil:
		return 0, 0, e.failed
	case e.over:
		if wait = e.conn.arrival(e.overAt).Sub(now); wait <= 0 {
			return 0, 0, io.EOF
		}
	}
	if until := e.readBy.Sub(now); !e.readBy.IsZero() && (wait <= 0 || until < wait) {
		wait = until
	}
	return 0, wait, nil
}

// short draws how many of n bytes a call reads or writes: in one of four calls a few of them.
func (e *end) short(n int) int {
	e.transfers++
	x := mix(e.conn.net.seed ^ e.id ^ uint64(e.transfers)<<32)
	if n < 2 || x%4 != 0 {
		return n
	}
	return 1 + int(x>>8)%min(n, 200)
}

// Write implements net.Conn. It waits for room.
func (e *end) Write(b []byte) (n int, err error) {
	for {
		e.conn.mu.Lock()
		if !e.writeBy.IsZero() && !time.Now().Before(e.writeBy) {
			e.conn.mu.Unlock()
			return n, os.ErrDeadlineExceeded
		}
		m, err := e.send(b[n:])
		by := e.writeBy
		e.conn.mu.Unlock()
		if n += m; err != nil || n == len(b) {
			return n, err
		}
		if m > 0 {
			continue
		}
		if by.IsZero() {
			<-e.writable
			continue
		}
		timer := time.NewTimer(time.Until(by))
		select {
		case <-timer.C:
		case <-e.writable:
			timer.Stop()
		}
	}
}

// send sends the bytes that fit, and returns their number. The caller holds mu.
func (e *end) send(b []byte) (n int, err error) {
	switch {
	case e.closed:
		return 0, net.ErrClosed
	case e.failed != nil:
		return 0, e.failed
	}
	if n = min(len(b), e.peer.room-e.peer.size); n > 0 {
		n = e.short(n)
	}
	if n <= 0 {
		if e.full.IsZero() && len(b) > 0 {
			e.full = time.Now()
		}
		return 0, nil
	}
	e.waited()
	forged := e.conn.tap.forges(e)
	if cut := e.conn.tap.wrote(e, b[:n]); cut && !e.conn.broken {
		e.conn.breakUp(nil)
	}
	if e.conn.broken || e.peer.closed { // lost
		if e.dropped.IsZero() {
			e.dropped = time.Now()
		}
		return n, nil
	}
	due := time.Now().Add(e.conn.delay(e))
	if due.Before(e.peer.last) {
		due = e.peer.last
	}
	e.peer.last = due
	sent := append(forged[:len(forged):len(forged)], b[:n]...)
	e.peer.unread = append(e.peer.unread, segment{due, sent})
	e.peer.size += len(sent)
	wake(e.peer.readable)
	return n, nil
}

// waited notes that no write waits for room any more. The caller holds mu.
func (e *end) waited() {
	if !e.full.IsZero() {
		e.longest, e.full = max(e.longest, time.Since(e.full)), time.Time{}
	}
}

// Close implements net.Conn. As in TCP, a close with unread bytes resets the connection: the peer
// loses the bytes that are on their way.
func (e *end) Close() error {
	c := e.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	e.closed = true
	e.waited()
	c.tap.lost(e)
	if (e.size > 0 || e.resets) && !c.broken {
		c.breakUp(e)
	}
	e.endWrites()
	if e.peer.closed {
		e.host.forget(c)
	}
	for _, ch := range []chan struct{}{e.readable, e.writable, e.peer.readable, e.peer.writable} {
		wake(ch)
	}
	return nil
}

// endWrites lets the peer find the end behind the bytes so far. The caller holds mu.
func (e *end) endWrites() {
	if e.conn.broken || e.peer.over {
		return
	}
	at := time.Now().Add(e.conn.delay(e))
	if at.Before(e.peer.last) {
		at = e.peer.last
	}
	e.peer.over, e.peer.overAt = true, at
}

// Ended returns when the peer has closed the connection, or the connection has broken, as far as the
// end's kernel knows; zero if it has not. The process learns it when it reads.
func (e *end) Ended() time.Time {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	if e.over && (e.failedAt.IsZero() || e.overAt.Before(e.failedAt)) {
		return e.overAt
	}
	return e.failedAt
}

// Waited returns the longest time for which a write of the peer has waited until this end took any of
// it.
func (e *end) Waited() time.Duration {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	return e.peer.longest
}

// LocalAddr implements net.Conn.
func (e *end) LocalAddr() net.Addr { return address(e.host.name) }

// RemoteAddr implements net.Conn.
func (e *end) RemoteAddr() net.Addr { return address(e.peer.host.name) }

// SetDeadline implements net.Conn.
func (e *end) SetDeadline(t time.Time) error { return e.deadlines(&t, &t) }

// SetReadDeadline implements net.Conn.
func (e *end) SetReadDeadline(t time.Time) error { return e.deadlines(&t, nil) }

// SetWriteDeadline implements net.Conn.
func (e *end) SetWriteDeadline(t time.Time) error { return e.deadlines(nil, &t) }

func (e *end) deadlines(read, write *time.Time) error {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	if read != nil {
		e.readBy = *read
	}
	if write != nil {
		if e.writeBy = *write; !write.IsZero() && !time.Now().Before(*write) {
			e.waited()
		}
	}
	wake(e.readable)
	wake(e.writable)
	return nil
}

// address is the address of a host. It implements net.Addr.
type address string

// Network implements net.Addr.
func (a address) Network() string { return "memory" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

// cut breaks the connection. by notices at once; nil means that both ends notice later.
func (c *conn) cut(by *Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.broken:
		return
	case by == nil:
		c.breakUp(nil)
	case by == c.caller.host:
		c.breakUp(c.caller)
	default:
		c.breakUp(c.callee)
	}
}

// sever breaks the connection. by notices after a while, and the other end never.
func (c *conn) sever(by *end) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return
	}
	c.lose()
	c.noticeLater(by)
	wake(by.peer.writable)
}

// breakUp is cut for a caller that holds mu.
func (c *conn) breakUp(by *end) {
	c.lose()
	for _, e := range []*end{c.caller, c.callee} {
		if e == by {
			e.notice()
		} else {
			c.noticeLater(e)
		}
	}
	for _, e := range []*end{c.caller, c.callee} {
		wake(e.writable)
	}
}

// noticeLater makes an end learn in its own time that the connection has broken. The caller holds mu.
func (c *conn) noticeLater(e *end) {
	now := time.Now()
	at := c.arrival(now.Add(c.delay(e)))
	time.AfterFunc(at.Sub(now), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		e.notice()
	})
}

// lose drops the bytes in flight, and all that are sent from now on. The caller holds mu.
func (c *conn) lose() {
	c.broken = true
	now := time.Now()
	for _, e := range []*end{c.caller, c.callee} {
		for i, s := range e.unread { // what has not arrived is lost
			if c.arrival(s.due).After(now) {
				e.unread = e.unread[:i]
				break
			}
		}
		e.size = 0
		for _, s := range e.unread {
			e.size += len(s.data)
		}
		if e.over && c.arrival(e.overAt).After(now) {
			e.over = false
		}
	}
	c.tap.cut(now)
}

// notice makes an end learn that the connection has broken. The caller holds mu.
func (e *end) notice() {
	if e.failed == nil {
		e.failed, e.failedAt = &net.OpError{Op: "read", Net: "memory", Err: syscall.ECONNRESET}, time.Now()
		e.conn.tap.lost(e)
	}
	wake(e.readable)
	wake(e.writable)
}

// delay draws the time that bytes take which an end sends now. Those of a client take none, so that the
// times of its answer are those of the services.
func (c *conn) delay(e *end) time.Duration {
	if c.tap == nil {
		return 0
	}
	return c.net.delay(e.id, c.path)
}

// arrival returns when bytes arrive that are due at a time, given the stalls of the path. The caller
// holds mu.
func (c *conn) arrival(due time.Time) time.Time {
	n := c.net
	n.mu.Lock()
	from, until := c.path.stalledFrom, c.path.stalledUntil
	n.mu.Unlock()
	if due.After(from) && due.Before(until) {
		c.tap.delay()
		return until
	}
	return due
}
