package front

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A listener closes connections whose peer has acknowledged no data for the timeout.
type listener struct {
	net.Listener
	timeout time.Duration
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok && l.timeout > 0 {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				// Otherwise the kernel's own timeout of several minutes applies.
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(l.timeout.Milliseconds()))
			})
		}
	}
	return conn, nil
}

// wasReset reports whether the peer of a connection has reset it, even if data from before the
// reset is still unread.
func wasReset(conn net.Conn) (reset bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err == nil && info.State == unix.BPF_TCP_CLOSE
	})
	return reset || err != nil // an error means that the transport has closed the connection
}
