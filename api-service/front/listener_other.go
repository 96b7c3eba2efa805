//go:build !linux

package front

import (
	"net"
	"time"
)

// A listener is a plain listener: the system's own timeouts detect vanished peers.
type listener struct {
	net.Listener
	timeout time.Duration
}

// wasReset is not supported on this system: a write to a client that does not read ends with the
// write timeout.
func wasReset(net.Conn) bool { return false }
