//go:build !linux

package socket

import (
	"errors"
	"syscall"
	"time"
)

// Tune implements Kernel. It does nothing: the system's own timeouts detect vanished clients.
func (descriptor) Tune(int) error { return nil }

// Acknowledged implements Kernel. The system does not report acknowledgements.
func (descriptor) Acknowledged() (all bool, ago time.Duration, err error) {
	return false, 0, errors.ErrUnsupported
}

// Send implements Kernel. It writes nothing: the handler writes the whole answer.
func (descriptor) Send([]byte) (int, error) { return 0, nil }

// ResetOnClose implements Kernel. The connection is closed instead.
func (descriptor) ResetOnClose() {}

// CutOff implements Kernel. It closes the connection.
func (d descriptor) CutOff() {
	_ = syscall.Shutdown(int(d), syscall.SHUT_RDWR) // fails only if the client has closed the connection
}
