//go:build unix

package nowait_test

import (
	"net"
	"testing"

	"github.com/whence-dev/whence/internal/nowait"
	"github.com/whence-dev/whence/internal/polltest"
)

func TestSilentConnectionsAreOpenAndHaveNothingToRead(t *testing.T) {
	talks, hears := pair(t)
	if !nowait.Silent(hears) {
		t.Error("a new connection is not silent")
	}
	if _, err := talks.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "a byte from the peer", func() bool { return !nowait.Silent(hears) })
	if n, err := hears.Read(make([]byte, 2)); n != 1 || err != nil || !nowait.Silent(hears) {
		t.Errorf("the byte was read by Silent, or the connection is not silent without it: %d, %v", n, err)
	}
	if err := talks.Close(); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the end of the connection", func() bool { return !nowait.Silent(hears) })
	if err := hears.Close(); err != nil || nowait.Silent(hears) {
		t.Error("a closed connection is silent:", err)
	}
	if a, _ := net.Pipe(); nowait.Silent(a) {
		t.Error("a connection without a descriptor is reported as silent")
	}
}
