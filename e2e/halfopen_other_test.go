//go:build !linux

package e2e

import (
	"net"
	"testing"
)

// dropIncoming needs a socket filter, which only Linux has here.
func dropIncoming(t *testing.T, _ *net.TCPConn) {
	t.Helper()
	missing(t, "no socket filters on this system")
}
