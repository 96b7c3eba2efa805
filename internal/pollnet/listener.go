// Package pollnet gives the servers of Hertz and Kitex a listener that does not close the
// descriptors of others.
//
// The listener that netpoll makes of a net.Listener closes its duplicate of the descriptor twice.
// Kitex closes that listener twice more, and then removes the number from its poller. In between,
// another goroutine may have opened a file or a connection with the same number, which is then
// closed, or no longer read.
package pollnet

import (
	"errors"
	"net"
	"syscall"

	"github.com/whence-dev/whence/internal/descriptors"
)

// A listener is a netpoll.Listener on the descriptor of a net.TCPListener itself.
type listener struct {
	*net.TCPListener
	raw syscall.RawConn
	fd  int
}

// Listener returns ln for a server of Hertz or Kitex. On Linux, closing the result only makes it
// refuse connections: the caller must close ln after the server has returned. Listener returns a
// listener that is not a net.TCPListener unchanged.
func Listener(ln net.Listener) (net.Listener, error) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return ln, nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &listener{TCPListener: tcp, raw: raw}
	if err := raw.Control(func(fd uintptr) { l.fd = int(fd) }); err != nil {
		return nil, err
	}
	return l, nil
}

// Fd implements netpoll.Listener.
func (l *listener) Fd() int { return l.fd }

// Close makes l refuse connections.
func (l *listener) Close() error {
	var err error
	closed := l.raw.Control(func(fd uintptr) { err = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	return errors.Join(closed, err)
}

// Accept returns the next connection. It does not block: if there is no connection it returns nil,
// nil, as netpoll's own listener does.
func (l *listener) Accept() (net.Conn, error) {
	var (
		fd   int
		peer net.Addr
		err  error
	)
	closed := l.raw.Control(func(ln uintptr) { fd, peer, err = descriptors.Accept(int(ln)) })
	switch {
	case closed != nil:
		return nil, closed
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR), errors.Is(err, syscall.ECONNABORTED),
		errors.Is(err, syscall.EINVAL): // after Close
		return nil, nil //nolint:nilnil // see above
	case err != nil:
		return nil, err // unchanged: netpoll checks for EMFILE
	case peer == nil:
		return nil, nil //nolint:nilnil // refused: netpoll asks for the next one
	}
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1) // fails only if the client has gone
	return &conn{fd: fd, local: l.Addr(), remote: peer}, nil
}

// A conn passes a descriptor to netpoll, which makes its own connection from it.
type conn struct {
	net.Conn      // nil: netpoll calls only the following methods
	fd            int
	local, remote net.Addr
}

func (c *conn) Fd() int              { return c.fd }
func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }
