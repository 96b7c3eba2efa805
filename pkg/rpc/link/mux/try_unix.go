//go:build unix

package mux

import (
	"errors"
	"net"
	"syscall"
)

// rawConn returns access to the socket of a TCP or Unix connection; nil for other connections.
func rawConn(nc net.Conn) syscall.RawConn {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// A trial writes to a socket without blocking. One goroutine uses it at a time.
type trial struct {
	b    []byte
	n    int
	err  error
	once func(fd uintptr) bool // made once: a closure per write would be an allocation
}

func (t *trial) prepare() {
	t.once = func(fd uintptr) bool {
		for t.n < len(t.b) {
			n, err := syscall.Write(int(fd), t.b[t.n:])
			switch {
			case err == nil:
				t.n += n
			case errors.Is(err, syscall.EINTR):
			case errors.Is(err, syscall.EAGAIN):
				return true
			default:
				t.err = err
				return true
			}
		}
		return true
	}
}

// write returns how many bytes the kernel took at once.
func (t *trial) write(raw syscall.RawConn, b []byte) (n int, err error) {
	t.b, t.n, t.err = b, 0, nil
	if err := raw.Write(t.once); err != nil {
		return 0, err
	}
	t.b = nil
	return t.n, t.err
}
