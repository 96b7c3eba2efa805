//go:build !linux

package front

import (
	"net"
	"time"
)

// A listener is one; which peers have vanished is left to the system's own time-outs.
type listener struct {
	net.Listener
	timeout time.Duration
}

// wasReset is not known here: a write to a client that does not read ends with the bound of a write.
func wasReset(net.Conn) bool { return false }
