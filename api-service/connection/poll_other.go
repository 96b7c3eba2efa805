//go:build !linux

package connection

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whence-dev/whence/internal/descriptors"
	"github.com/whence-dev/whence/internal/nowait"
)

// A transport accepts connections from a listener. Each has a goroutine that waits for input in Go's
// poller.
type transport struct{ listener *net.TCPListener }

// open prepares for connections from ln.
func (t *transport) open(ln net.Listener, _ int) error {
	var ok bool
	if t.listener, ok = ln.(*net.TCPListener); !ok {
		return errNotTCP
	}
	return nil
}

// stop ends accept.
func (t *transport) stop() { _ = t.listener.Close() } // fails only for a second time

func (*transport) close() {}

// accept accepts connections until stop is called.
func (t *transport) accept(s *Server) error {
	for {
		conn, err := t.listener.AcceptTCP()
		switch {
		case descriptors.IsExhausted(err):
			pause()
			continue
		case err != nil:
			return err
		}
		raw, err := conn.SyscallConn()
		if err != nil { // the connection has been closed
			_ = conn.Close()
			continue
		}
		_ = conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: ProbeEvery, Interval: ProbeEvery}) // fails only if the client has gone
		go s.ServeStream(&tcpStream{conn, raw})
	}
}

// A tcpStream is a TCP connection whose writes need not wait.
type tcpStream struct {
	*net.TCPConn
	raw syscall.RawConn
}

// Send implements Stream.
func (t *tcpStream) Send(b []byte) (n int, err error) {
	failed := t.raw.Control(func(fd uintptr) { n, err = nowait.Write(int(fd), b) })
	return n, errors.Join(failed, err)
}

// AwaitRoom implements Stream.
func (t *tcpStream) AwaitRoom() {
	_ = t.raw.Write(func(fd uintptr) (done bool) { // fails only if the connection is closed
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(ready, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}

// Acknowledged implements Stream. The system does not report acknowledgements.
func (*tcpStream) Acknowledged() (all bool, ago time.Duration, err error) {
	return false, 0, errors.ErrUnsupported
}

// ResetOnClose implements Stream.
func (t *tcpStream) ResetOnClose() { _ = t.SetLinger(0) } // after an error the connection is closed instead
