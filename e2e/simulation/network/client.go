package network

import (
	"context"
	"net"
	"sync"
	"time"

	hertz "github.com/cloudwego/hertz/pkg/network"
	hertznetpoll "github.com/cloudwego/hertz/pkg/network/netpoll"
	"github.com/cloudwego/netpoll"

	"github.com/whence-dev/whence/api-service/edge/socket"
	"github.com/whence-dev/whence/e2e/simulation/client"
)

// Connect opens a connection of a client with a name to a host: near is the client's end, which leaves
// at most window bytes unread, and far is the end of the server.
func (n *Network) Connect(name string, to *Host, window int) (near client.Conn, far *PollConn) {
	n.mu.Lock()
	n.serial++
	serial := n.serial
	n.mu.Unlock()
	c := newConn(&Host{net: n, name: name}, to, serial)
	c.caller.room = window
	return c.caller, &PollConn{end: c.callee, over: make(chan struct{}), incoming: make(chan struct{}, 1)}
}

// Tune implements socket.Kernel.
func (e *end) Tune(int) error { return nil }

// Send implements socket.Kernel.
func (e *end) Send(b []byte) (n int, err error) { return direct{e}.Write(b) }

// Acknowledged implements socket.Kernel: bytes are acknowledged when they arrive.
func (e *end) Acknowledged() (all bool, ago time.Duration, err error) {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	now := time.Now()
	if !e.dropped.IsZero() {
		return false, now.Sub(e.dropped), nil
	}
	for _, s := range e.peer.unread {
		if e.conn.arrival(s.due).After(now) {
			return false, now.Sub(s.due), nil
		}
	}
	return true, 0, nil
}

// ResetOnClose implements socket.Kernel.
func (e *end) ResetOnClose() {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	e.resets = true
}

// CutOff implements socket.Kernel.
func (e *end) CutOff() { e.conn.cut(e.host) }

// A PollConn is the server's end of a client's connection, and behaves like a connection of netpoll: what
// arrives is read at once and kept, a handler is called for it unless one runs, a write waits for room
// up to the write timeout, and the end closes when the client does and no handler runs.
type PollConn struct {
	*end
	ctx   context.Context //nolint:containedctx // of the server's accept
	serve func(context.Context, hertz.Conn) error
	over  chan struct{} // closed when the end is closed

	mu           sync.Mutex // guards the following fields
	in           []byte     // unread
	out          []byte     // written, not flushed
	running      bool       // the handler runs
	left         bool       // the client has closed the connection
	closed       bool       // the server has closed it
	finished     bool
	readBy       time.Time
	readTimeout  time.Duration
	writeTimeout time.Duration
	onClose      []netpoll.CloseCallback
	onLeft       netpoll.OnDisconnect

	incoming chan struct{} // capacity 1: something has changed for the reader
}

var (
	_ hertz.Conn    = (*PollConn)(nil)
	_ socket.Kernel = (*PollConn)(nil)
)

// Serve runs the connection until it is closed. accept and serve are those of edge.Handler.
func (p *PollConn) Serve(accept func(net.Conn) context.Context, serve func(context.Context, hertz.Conn) error) {
	p.serve = serve
	p.ctx = accept(&hertznetpoll.Conn{Conn: p})
	buf := make([]byte, 2<<10)
	for {
		n, err := p.end.Read(buf)
		p.mu.Lock()
		p.in = append(p.in, buf[:n]...)
		if err != nil {
			p.hungUp()
			break
		}
		begins := !p.running && !p.closed
		p.running = p.running || begins
		p.mu.Unlock()
		wake(p.incoming)
		if begins {
			go p.handle()
		}
	}
	<-p.over
}

// hungUp makes the server learn that the client has closed the connection. The caller holds mu, which
// is released.
func (p *PollConn) hungUp() {
	if p.closed || p.left {
		p.mu.Unlock()
		return
	}
	p.left = true
	onLeft, runs := p.onLeft, p.running
	p.mu.Unlock()
	wake(p.incoming)
	_ = p.SetWriteDeadline(time.Unix(1, 0)) // ends a flush
	if onLeft != nil {
		onLeft(p.ctx, nil)
	}
	if !runs {
		p.finish()
	}
}

// handle calls the handler until it has read everything, and closes the end that a side has closed.
func (p *PollConn) handle() {
	for {
		p.mu.Lock()
		if p.closed || len(p.in) == 0 {
			p.running = false
			over := p.closed || p.left
			p.mu.Unlock()
			if over {
				p.finish()
			}
			return
		}
		p.mu.Unlock()
		_ = p.serve(p.ctx, &hertznetpoll.Conn{Conn: p}) // a failed connection has been closed
	}
}

// finish closes the end, once.
func (p *PollConn) finish() {
	p.mu.Lock()
	finished := p.finished
	p.finished = true
	p.mu.Unlock()
	if finished {
		return
	}
	for _, f := range p.onClose {
		_ = f(nil)
	}
	_ = p.end.Close()
	close(p.over)
}

// Close implements net.Conn.
func (p *PollConn) Close() error {
	p.mu.Lock()
	p.closed = true
	runs := p.running
	p.mu.Unlock()
	wake(p.incoming)
	_ = p.SetWriteDeadline(time.Unix(1, 0)) // ends a flush
	if !runs {
		p.finish()
	}
	return nil
}

// Address is the address of both ends of a client's connection for the server.
var Address net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}

// LocalAddr implements net.Conn.
func (p *PollConn) LocalAddr() net.Addr { return Address }

// RemoteAddr implements net.Conn.
func (p *PollConn) RemoteAddr() net.Addr { return Address }

// AddCloseCallback registers a function that is called before the end is closed.
func (p *PollConn) AddCloseCallback(f netpoll.CloseCallback) error {
	p.onClose = append(p.onClose, f)
	return nil
}

// SetOnDisconnect registers the function that is called when the client has closed the connection.
func (p *PollConn) SetOnDisconnect(f netpoll.OnDisconnect) error {
	p.onLeft = f
	return nil
}

// Peek implements network.Reader. Its result is a copy, because Hertz writes into headers while more
// bytes arrive.
func (p *PollConn) Peek(n int) ([]byte, error) {
	if err := p.await(n); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]byte(nil), p.in[:n]...), nil
}

// await waits until n bytes have arrived.
func (p *PollConn) await(n int) error {
	var late <-chan time.Time
	for {
		p.mu.Lock()
		have, closed, left, waits := len(p.in), p.closed, p.left, p.readTimeout
		if !p.readBy.IsZero() {
			waits = max(time.Until(p.readBy), 1)
		}
		p.mu.Unlock()
		switch {
		case have >= n:
			return nil
		case closed:
			return netpoll.ErrConnClosed
		case left:
			return netpoll.ErrEOF
		}
		if late == nil && waits > 0 {
			timer := time.NewTimer(waits)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-p.incoming:
		case <-late:
			return netpoll.ErrReadTimeout
		}
	}
}

// take takes at most n bytes, of which at least one has arrived.
func (p *PollConn) take(n int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.in[:min(n, len(p.in))]
	p.in = p.in[len(b):]
	return b
}

// Skip implements network.Reader.
func (p *PollConn) Skip(n int) error {
	err := p.await(n)
	if err == nil {
		p.take(n)
	}
	return err
}

// Release implements network.Reader.
func (p *PollConn) Release() error { return nil }

// Len implements network.Reader.
func (p *PollConn) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.in)
}

// ReadByte implements network.Reader.
func (p *PollConn) ReadByte() (byte, error) {
	b, err := p.ReadBinary(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// ReadBinary implements network.Reader.
func (p *PollConn) ReadBinary(n int) ([]byte, error) {
	if err := p.await(n); err != nil {
		return nil, err
	}
	return append([]byte(nil), p.take(n)...), nil
}

// Read implements net.Conn.
func (p *PollConn) Read(b []byte) (int, error) {
	if err := p.await(1); err != nil {
		return 0, err
	}
	return copy(b, p.take(len(b))), nil
}

// Malloc implements network.Writer.
func (p *PollConn) Malloc(n int) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = append(p.out, make([]byte, n)...)
	return p.out[len(p.out)-n:], nil
}

// WriteBinary implements network.Writer.
func (p *PollConn) WriteBinary(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = append(p.out, b...)
	return len(b), nil
}

// Write implements net.Conn.
func (p *PollConn) Write(b []byte) (int, error) {
	_, _ = p.WriteBinary(b)
	return len(b), p.Flush()
}

// Flush implements network.Writer.
func (p *PollConn) Flush() error {
	p.mu.Lock()
	b := p.out
	p.out = nil
	if !p.closed && !p.left {
		by := time.Time{}
		if p.writeTimeout > 0 {
			by = time.Now().Add(p.writeTimeout)
		}
		_ = p.SetWriteDeadline(by)
	}
	p.mu.Unlock()
	_, err := p.end.Write(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		return nil
	case p.closed || p.left:
		return netpoll.ErrConnClosed
	default:
		return netpoll.ErrWriteTimeout
	}
}

// SetDeadline implements net.Conn.
func (p *PollConn) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (p *PollConn) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readBy = t
	return nil
}

// SetReadTimeout implements network.Conn. It removes the deadline, as netpoll does.
func (p *PollConn) SetReadTimeout(d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readBy, p.readTimeout = time.Time{}, d
	return nil
}

// SetWriteTimeout implements network.Conn.
func (p *PollConn) SetWriteTimeout(d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writeTimeout = d
	return nil
}
