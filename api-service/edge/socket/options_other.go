//go:build !linux

package socket

import (
	"errors"
	"syscall"
	"time"
)

// tune does nothing: the system's own timeouts detect vanished clients.
func tune(int, int) error { return nil }

// acknowledged is not supported on this system.
func acknowledged(int) (all bool, ago time.Duration, err error) {
	return false, 0, errors.ErrUnsupported
}

// send writes nothing: the handler writes the whole answer.
func send(int, []byte) (int, error) { return 0, nil }

// reset does nothing: the connection is closed.
func reset(int) {}

// cutOff closes a connection that may still be used: both sides find it closed.
func cutOff(fd int) {
	_ = syscall.Shutdown(fd, syscall.SHUT_RDWR) // fails only if the client has closed the connection
}
