package descriptors

import (
	"net"
	"sync"
	"syscall"
)

// Listener returns ln for a server whose connections last: a link, or gRPC. It closes connections
// that would take the second half of the reserve.
func Listener(ln net.Listener) net.Listener { return &listener{ln, own(), nil} }

// BriefListener returns ln for an HTTP server: a late connection may close the oldest one.
func BriefListener(ln net.Listener) net.Listener { return &listener{ln, own(), new(Brief)} }

type listener struct {
	net.Listener
	budget *budget
	brief  *Brief // of HTTP servers; nil for others
}

// Accept implements net.Listener. It returns connections that are not late as they are.
func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		switch {
		case IsExhausted(err):
			if !l.drop() {
				return nil, err // a temporary error: servers wait before they accept again
			}
			continue
		case err != nil:
			return nil, err
		}
		fd := descriptorOf(nc)
		switch {
		case !l.budget.late(fd):
			return nc, nil
		case l.brief != nil:
			return &briefConn{nc, sync.OnceFunc(l.brief.Enter(func() { _ = nc.Close() }))}, nil
		}
		if first, reserve := l.budget.zone(); fd < first+reserve/2 {
			return nc, nil
		}
		l.budget.refused.Add(1)
		_ = nc.Close()
	}
}

// drop reports whether a connection waited and was refused.
func (l *listener) drop() bool {
	sc, ok := l.Listener.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	closed := raw.Control(func(fd uintptr) { err = l.budget.drop(int(fd)) })
	return closed == nil && err == nil
}

// descriptorOf returns the descriptor of a connection; 0, which is not late, if it has none.
func descriptorOf(nc net.Conn) int {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n = int(fd) }) // fails only if the connection is closed
	return n
}

// A briefConn is a late connection of an HTTP server.
type briefConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *briefConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
