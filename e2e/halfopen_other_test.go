//go:build !linux

package e2e

import (
	"net"
	"testing"
)

// deafen needs a socket filter.
func deafen(t *testing.T, _ *net.TCPConn) {
	t.Helper()
	missing(t, "no socket filters on this system")
}
