package grpcserver

import (
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/whence-dev/whence/internal/descriptors"
)

// A listener remembers the connections that it has accepted. grpc-go's Stop closes the connections
// that have finished their handshake and waits for the others; closeAll closes those, too.
type listener struct {
	net.Listener

	mu   sync.Mutex // guards open
	open map[*acceptedConn]bool
}

func newListener(ln net.Listener) *listener {
	return &listener{Listener: descriptors.Listener(ln), open: map[*acceptedConn]bool{}}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &acceptedConn{nc, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = true
	return c, nil
}

// closeAll closes all connections.
func (l *listener) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Conn.Close()
	}
}

// An acceptedConn removes itself from its listener when it is closed.
type acceptedConn struct {
	net.Conn
	listener *listener
}

// Close implements net.Conn.
func (c *acceptedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// SyscallConn implements syscall.Conn.
func (c *acceptedConn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, fmt.Errorf("grpcserver: %T has no descriptor", c.Conn)
}
