package connection_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// window is the number of bytes that one end of a pipe may have unread.
const window = 128 << 10

// A pipe is a connection in memory for tests in virtual time. It is the server's end, and implements
// connection.Stream; client is the other.
type pipe struct {
	mu      sync.Mutex
	changed sync.Cond
	up      direction // from the client
	down    direction // to the client
	reset   bool      // by the server
	resets  bool
	closed  bool // by the server
}

// A direction is the bytes that one end has sent and the other has not read.
type direction struct {
	unread []byte
	room   int
	ended  bool
}

// A clientEnd is the client's end of a pipe.
type clientEnd struct{ *pipe }

func newPipe() (server *pipe, client clientEnd) {
	p := &pipe{up: direction{room: window}, down: direction{room: window}}
	p.changed.L = &p.mu
	return p, clientEnd{p}
}

// read takes bytes of a direction, and waits for them.
func (p *pipe) read(d *direction, b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(d.unread) == 0 {
		switch {
		case p.reset:
			return 0, syscall.ECONNRESET
		case d.ended:
			return 0, io.EOF
		case d == &p.up && p.closed:
			return 0, net.ErrClosed
		}
		p.changed.Wait()
	}
	n := copy(b, d.unread)
	d.unread = d.unread[n:]
	p.changed.Broadcast()
	return n, nil
}

// put sends the bytes for which there is room. mu is held.
func (p *pipe) put(d *direction, b []byte) (int, error) {
	if p.reset || p.closed || d.ended {
		return 0, syscall.EPIPE
	}
	n := min(len(b), d.room-len(d.unread))
	d.unread = append(d.unread, b[:n]...)
	p.changed.Broadcast()
	return n, nil
}

func (p *pipe) end(change func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
	return nil
}

func (p *pipe) Read(b []byte) (int, error) { return p.read(&p.up, b) }

func (p *pipe) Send(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.put(&p.down, b)
}

func (p *pipe) Write([]byte) (int, error) { return 0, errors.New("a server only sends") }

func (p *pipe) AwaitRoom() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.reset && !p.closed && len(p.down.unread) >= p.down.room {
		p.changed.Wait()
	}
}

func (p *pipe) Acknowledged() (bool, time.Duration, error) { return true, 0, nil }

func (p *pipe) CloseWrite() error { return p.end(func() { p.down.ended = true }) }

func (p *pipe) ResetOnClose() { _ = p.end(func() { p.resets = true }) }

func (p *pipe) Close() error {
	return p.end(func() {
		if p.closed, p.down.ended = true, true; p.resets || len(p.up.unread) > 0 { // as the kernel does
			p.reset, p.down.unread = true, nil
		}
	})
}

func (p *pipe) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }
func (p *pipe) RemoteAddr() net.Addr             { return p.LocalAddr() }
func (p *pipe) SetDeadline(time.Time) error      { return nil }
func (p *pipe) SetReadDeadline(time.Time) error  { return nil }
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

// Read implements io.Reader.
func (c clientEnd) Read(b []byte) (int, error) { return c.read(&c.down, b) }

// Write implements io.Writer. It waits for room.
func (c clientEnd) Write(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(b) {
		m, err := c.put(&c.up, b[n:])
		if n += m; err != nil {
			return n, err
		}
		if m == 0 {
			c.changed.Wait()
		}
	}
	return n, nil
}

// Offer sends the bytes for which there is room, and returns their number.
func (c clientEnd) Offer(b []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, _ := c.put(&c.up, b)
	return n
}

// CloseWrite ends what the client sends.
func (c clientEnd) CloseWrite() { _ = c.end(func() { c.up.ended = true }) }

// Reset breaks the connection.
func (c clientEnd) Reset() {
	_ = c.end(func() { c.reset, c.up.unread, c.down.unread = true, nil, nil })
}

// Room returns the number of bytes for which there is room.
func (c clientEnd) Room() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up.room - len(c.up.unread)
}

func (c clientEnd) Close() error                     { c.CloseWrite(); return nil }
func (c clientEnd) SetDeadline(time.Time) error      { return nil }
func (c clientEnd) SetReadDeadline(time.Time) error  { return nil }
func (c clientEnd) SetWriteDeadline(time.Time) error { return nil }

// A client is what stories need of a client's end, with and without TLS.
type client interface {
	io.ReadWriter
	// Offer sends bytes if there is room, and returns the number of those sent.
	Offer(b []byte) int
	CloseWrite()
	Reset()
}

// A secureClient is a client's end with TLS.
type secureClient struct {
	*tls.Conn
	raw clientEnd
}

func (c secureClient) Offer(b []byte) int {
	const overhead = 1 << 10 // of records
	if c.raw.Room() < len(b)+overhead {
		return 0
	}
	n, _ := c.Write(b)
	return n
}

func (c secureClient) CloseWrite() {
	_ = c.Conn.CloseWrite()
	c.raw.CloseWrite()
}

func (c secureClient) Reset() { c.raw.Reset() }
