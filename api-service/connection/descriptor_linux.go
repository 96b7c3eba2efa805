package connection

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/whence-dev/whence/internal/nowait"
)

const (
	// probes is the number of unanswered keep-alive probes after which an idle connection is closed.
	probes = 3
	// received is the size of the kernel's buffer for bytes that have not been read, in bytes. Without
	// it, the buffer grows to megabytes while a client is not read. Bodies are small.
	received = 128 << 10
	// readsAtOnce bounds the reads of one connection before others have their turn.
	readsAtOnce = 4
)

// A descriptor is the socket of a connection with a file descriptor, which a poller watches.
type descriptor struct {
	fd     int
	id     int32 // of the poller's events
	poller *poller
	conn   *Conn

	// Guarded by the conn's mu.
	input   bool   // is watched
	events  uint32 // that the poller reports
	removed bool   // from the poller
	closed  bool
}

// tune sets the options of a new connection. Those of the listener would not do: Go listens with
// MPTCP, whose connections inherit few of them. unsent is the number of bytes that may wait in the
// kernel for a slow client before send takes no more, besides the bytes in flight; 0 means the
// system's limit.
func tune(fd, unsent int) error {
	const every = int(ProbeEvery / time.Second)
	err := errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, every),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, every),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, probes),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, received),
	)
	if unsent > 0 {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent))
	}
	return err
}

// ready handles events, on the poller's goroutine. buf is for input.
func (d *descriptor) ready(events uint32, buf []byte) {
	const failed = unix.EPOLLHUP | unix.EPOLLERR
	if events&(unix.EPOLLOUT|failed) != 0 {
		d.conn.writable()
	}
	if events&(unix.EPOLLIN|failed) != 0 {
		d.readAll(buf)
	}
	if events&(unix.EPOLLRDHUP|failed) != 0 {
		d.ended(events&failed != 0)
	}
}

// readAll passes the input to the Conn, or a part of it: then the poller reports the event again.
func (d *descriptor) readAll(buf []byte) {
	for range readsAtOnce {
		n, err := d.read(buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return
		case errors.Is(err, unix.EINTR):
			continue
		case n <= 0:
			d.conn.lost()
			return
		}
		d.conn.arrived(buf[:n])
		if n < len(buf) {
			return
		}
	}
}

// read reads input unless it is not watched.
func (d *descriptor) read(buf []byte) (int, error) {
	d.conn.mu.Lock()
	defer d.conn.mu.Unlock()
	if d.closed || !d.input {
		return 0, unix.EAGAIN
	}
	return unix.Read(d.fd, buf)
}

// ended reports the end of an input that is not read. If the connection has failed, the poller would
// report that for ever.
func (d *descriptor) ended(failed bool) {
	d.conn.mu.Lock()
	unread := !d.input && !d.closed
	if unread && failed && !d.removed {
		d.removed = true
		d.poller.remove(d)
	}
	d.conn.mu.Unlock()
	if unread {
		d.conn.lost()
	}
}

func (d *descriptor) send(b []byte) (int, error) { return nowait.Write(d.fd, b) }

func (d *descriptor) watch(input, room bool) {
	d.input = input
	events := uint32(unix.EPOLLRDHUP)
	if d.conn.left {
		events = 0
	}
	if input {
		events |= unix.EPOLLIN
	}
	if room {
		events |= unix.EPOLLOUT
	}
	if events != d.events && !d.removed {
		d.events = events
		d.poller.modify(d)
	}
}

func (d *descriptor) acknowledged() (all bool, ago time.Duration, err error) {
	var info unix.TCPInfo // GetsockoptTCPInfo would put it on the heap: 288 bytes for each look at a stream
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(d.fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // the kernel needs the addresses
	if errno != 0 {
		return false, 0, errno
	}
	return info.Unacked == 0, time.Duration(info.Last_ack_recv) * time.Millisecond, nil
}

func (d *descriptor) closeWrite() { _ = unix.Shutdown(d.fd, unix.SHUT_WR) } // fails only if the client has closed the connection

func (d *descriptor) close(reset bool) {
	d.closed = true
	if reset {
		_ = unix.SetsockoptLinger(d.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // after an error the connection is closed instead
	}
	d.poller.forget(d)
	_ = unix.Close(d.fd) // also removes it from the poller
}
