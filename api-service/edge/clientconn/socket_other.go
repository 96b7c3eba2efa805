//go:build !linux

package clientconn

import (
	"errors"
	"time"
)

// tune does nothing: which clients have vanished is left to the system's own time-outs.
func tune(int, int) error { return nil }

// acknowledged is not known here.
func acknowledged(int) (all bool, ago time.Duration, err error) {
	return false, 0, errors.ErrUnsupported
}

// send takes nothing: the handler writes all of an answer.
func send(int, []byte) (int, error) { return 0, nil }

// reset does nothing: the connection is closed.
func reset(int) {}
