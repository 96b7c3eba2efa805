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

// Tune implements Kernel. Options of the listener would not work: Go listens with MPTCP, whose
// connections inherit few of them.
func (d descriptor) Tune(unsent int) error {
	fd := int(d)
	err := errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, probes),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, received),
	)
	if unsent > 0 {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent))
	}
	return err
}

// Acknowledged implements Kernel.
func (d descriptor) Acknowledged() (all bool, ago time.Duration, err error) {
	var info unix.TCPInfo // GetsockoptTCPInfo would put it on the heap: 288 bytes for each look at a stream
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(d), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // the kernel needs the addresses
	if errno != 0 {
		return false, 0, errno
	}
	return info.Unacked == 0, time.Duration(info.Last_ack_recv) * time.Millisecond, nil
}

// Send implements Kernel.
func (d descriptor) Send(b []byte) (n int, err error) { return nowait.Write(int(d), b) }

// ResetOnClose implements Kernel.
func (d descriptor) ResetOnClose() {
	_ = unix.SetsockoptLinger(int(d), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // after an error the connection is closed instead
}

// CutOff implements Kernel.
func (d descriptor) CutOff() {
	d.ResetOnClose()
	_ = unix.Shutdown(int(d), unix.SHUT_RDWR) // fails only if the client has closed the connection
}
