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

// outOfDescriptors needs prlimit, which only Linux has.
func (s *scene) outOfDescriptors() *refusal {
	s.t.Helper()
	missing(s.t, "no prlimit on this system")
	return nil
}
