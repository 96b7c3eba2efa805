//go:build unix

package nowait

import (
	"errors"
	"net"
	"syscall"
)

// Silent reports whether a TCP or Unix connection is open and has nothing to read at this moment. It
// does not wait, and reads nothing. It returns false for a connection whose state is unknown.
func Silent(nc net.Conn) bool {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var failed error
	err = raw.Read(func(fd uintptr) (done bool) {
		var b [1]byte
		for {
			_, _, failed = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if !errors.Is(failed, syscall.EINTR) {
				return true
			}
		}
	})
	return err == nil && errors.Is(failed, syscall.EAGAIN)
}
