package socket

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/whence-dev/whence/internal/nowait"
)

// probes is the number of unanswered keep-alive probes after which an idle connection is closed.
const probes = 3

// received is the size of the kernel's buffer for bytes that netpoll has not read yet. Without it, the
// buffer grows to megabytes, and netpoll's own buffers with it. Bodies are small.
const received = 128 << 10

// tune sets the options that netpoll does not set. unsent is the number of bytes that may wait in
// the kernel for a slow client before writes block, besides the bytes in flight; 0 means the
// system's limit. Options of the listener would not work: Go listens with MPTCP, whose connections
// inherit few of them.
func tune(fd, unsent int) error {
	err := errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, probes),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, received),
	)
	if unsent > 0 {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent))
	}
	return err
}

// acknowledged reports whether the peer of fd has acknowledged all data sent to it, and how long
// ago it last acknowledged any. A peer that does not read still acknowledges.
func acknowledged(fd int) (all bool, ago time.Duration, err error) {
	var info unix.TCPInfo // GetsockoptTCPInfo would put it on the heap: 288 bytes for each look at a stream
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // the kernel needs the addresses
	if errno != 0 {
		return false, 0, errno
	}
	return info.Unacked == 0, time.Duration(info.Last_ack_recv) * time.Millisecond, nil
}

// send writes to fd the bytes that the kernel accepts at once, and returns their number: 0 if the
// client reads too slowly.
func send(fd int, b []byte) (n int, err error) { return nowait.Write(fd, b) }

// reset makes the next close of a connection reset it.
func reset(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // after an error the connection is closed instead
}

// cutOff resets a connection that may still be used: both sides find it closed, and the kernel takes
// nothing more from the client.
func cutOff(fd int) {
	reset(fd)
	_ = unix.Shutdown(fd, unix.SHUT_RDWR) // fails only if the client has closed the connection
}
