package socket

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whence-dev/whence/internal/nowait"
)

// probes is how many keep-alive probes go unanswered before an idle connection is given up.
const probes = 3

// tune sets what netpoll does not: unsent is how many bytes a client may leave waiting in the kernel before writes to it
// block, beside those that are in flight; 0 is the system's limit. Options of the listener would not do: Go listens with
// MPTCP, whose connections inherit few of them.
func tune(fd, unsent int) error {
	err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, probes)
	if unsent > 0 {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent))
	}
	return err
}

// acknowledged tells whether the peer of fd has acknowledged all that was sent to it, and how long ago it last acknowledged
// anything. A peer that reads nothing still acknowledges.
func acknowledged(fd int) (all bool, ago time.Duration, err error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return false, 0, err
	}
	return info.Unacked == 0, time.Duration(info.Last_ack_recv) * time.Millisecond, nil
}

// send writes to fd what the kernel takes at once, and returns how many bytes that were: 0 if the
// client reads too slowly.
func send(fd int, b []byte) (n int, err error) { return nowait.Write(fd, b) }

// reset has the close of a connection reset it.
func reset(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // else it is closed
}
