// Package client is an HTTP client of the edge with an in-memory connection. The client may read
// slowly, stop reading, and leave, in virtual time.
//
// The server's side of a Conn behaves like netpoll's connections: a write waits while the client's
// buffer is full, up to the write timeout, and a client that closes ends the context of the
// connection.
package client

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/netpoll"
)

// A Conn is a connection. It implements network.Conn for the server.
type Conn struct {
	ctx    context.Context //nolint:containedctx // ends when the client closes, like netpoll's
	cancel context.CancelFunc
	window int // capacity of the client's buffer, in bytes

	mu           sync.Mutex // guards the following fields
	in           []byte     // to the server, unread
	inOver       bool
	out          [][]byte // written, not flushed
	wire         []byte   // to the client, unread
	serverClosed bool
	clientClosed bool
	readBy       time.Time
	readTimeout  time.Duration
	writeTimeout time.Duration

	incoming chan struct{} // capacity 1: data arrived for the server
	outgoing chan struct{} // capacity 1: data arrived for the client
	room     chan struct{} // capacity 1: the client has read, or one side has closed
}

var _ network.Conn = (*Conn)(nil)

// NewConn returns a connection whose client has a buffer of window bytes.
func NewConn(window int, writeTimeout time.Duration) *Conn {
	c := &Conn{window: window, writeTimeout: writeTimeout, incoming: make(chan struct{}, 1), outgoing: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Context ends when the client closes the connection.
func (c *Conn) Context() context.Context { return c.ctx }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Peek implements network.Reader.
func (c *Conn) Peek(n int) ([]byte, error) {
	if err := c.await(n); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in[:n], nil
}

// await waits until n bytes have arrived for the server.
func (c *Conn) await(n int) error {
	for {
		c.mu.Lock()
		have, over, by := len(c.in), c.inOver || c.clientClosed, c.readBy
		closed, timeout := c.serverClosed, c.readTimeout
		c.mu.Unlock()
		switch {
		case have >= n:
			return nil
		case closed:
			return netpoll.ErrConnClosed
		case over:
			return io.EOF
		}
		var late <-chan time.Time
		waits := timeout
		if !by.IsZero() {
			waits = max(time.Until(by), 1)
		}
		if waits > 0 {
			timer := time.NewTimer(waits)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-c.incoming:
		case <-late:
			return netpoll.ErrReadTimeout
		}
	}
}

// Skip implements network.Reader.
func (c *Conn) Skip(n int) error {
	_, err := c.next(n)
	return err
}

func (c *Conn) next(n int) ([]byte, error) {
	if err := c.await(n); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.in[:n]
	c.in = c.in[n:]
	return b, nil
}

// Release implements network.Reader.
func (c *Conn) Release() error { return nil }

// Len implements network.Reader.
func (c *Conn) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.in)
}

// ReadByte implements network.Reader.
func (c *Conn) ReadByte() (byte, error) {
	b, err := c.next(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// ReadBinary implements network.Reader.
func (c *Conn) ReadBinary(n int) ([]byte, error) {
	b, err := c.next(n)
	return append([]byte(nil), b...), err
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.await(1); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

// Malloc implements network.Writer.
func (c *Conn) Malloc(n int) ([]byte, error) {
	b := make([]byte, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, b)
	return b, nil
}

// WriteBinary implements network.Writer.
func (c *Conn) WriteBinary(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, b)
	return len(b), nil
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	_, _ = c.WriteBinary(b)
	return len(b), c.Flush()
}

// Flush implements network.Writer.
func (c *Conn) Flush() error {
	c.mu.Lock()
	var all []byte
	for _, b := range c.out {
		all = append(all, b...)
	}
	c.out = nil
	timeout := c.writeTimeout
	c.mu.Unlock()
	var late <-chan time.Time
	for {
		c.mu.Lock()
		if c.serverClosed || c.clientClosed {
			c.mu.Unlock()
			return netpoll.ErrConnClosed
		}
		n := min(len(all), max(0, c.window-len(c.wire)))
		c.wire = append(c.wire, all[:n]...)
		all = all[n:]
		c.mu.Unlock()
		if n > 0 {
			wake(c.outgoing)
		}
		if len(all) == 0 {
			return nil
		}
		if late == nil && timeout > 0 {
			timer := time.NewTimer(timeout)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-c.room:
		case <-late:
			return netpoll.ErrWriteTimeout
		}
	}
}

// Close implements net.Conn, for the server.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.serverClosed = true
	c.mu.Unlock()
	c.cancel()
	wake(c.incoming)
	wake(c.outgoing)
	wake(c.room)
	return nil
}

// leave closes the connection on the client's side.
func (c *Conn) leave() {
	c.mu.Lock()
	c.clientClosed = true
	c.mu.Unlock()
	c.cancel()
	wake(c.incoming)
	wake(c.outgoing)
	wake(c.room)
}

// send sends to the server.
func (c *Conn) send(b []byte) {
	c.mu.Lock()
	c.in = append(c.in[:len(c.in):len(c.in)], b...)
	c.mu.Unlock()
	wake(c.incoming)
}

// receive reads data from the server. It waits for at least one byte.
func (c *Conn) receive(p []byte) (int, error) {
	for {
		c.mu.Lock()
		if n := copy(p, c.wire); n > 0 {
			c.wire = c.wire[n:]
			c.mu.Unlock()
			wake(c.room)
			return n, nil
		}
		over, left := c.serverClosed, c.clientClosed
		c.mu.Unlock()
		switch {
		case left:
			return 0, net.ErrClosed
		case over:
			return 0, io.EOF
		}
		<-c.outgoing
	}
}

// Addr is the address of both ends of every Conn.
var Addr net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return Addr }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return Addr }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = t
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// SetReadTimeout implements network.Conn. It removes the deadline, as netpoll does.
func (c *Conn) SetReadTimeout(d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy, c.readTimeout = time.Time{}, d
	return nil
}

// SetWriteTimeout implements network.Conn.
func (c *Conn) SetWriteTimeout(d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeTimeout = d
	return nil
}
