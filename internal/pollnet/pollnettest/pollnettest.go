// Package pollnettest has listeners for servers of Hertz and Kitex in tests. A plain net.Listener would
// let such a server close files and connections of other tests: see package pollnet.
package pollnettest

import (
	"net"
	"testing"

	"github.com/whence-dev/whence/internal/pollnet"
)

// Listen returns a listener on a free loopback port. It is closed after the test.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() }) // the server has ended by then: its cleanup runs first
	polled, err := pollnet.Listener(ln)
	if err != nil {
		t.Fatal(err)
	}
	return polled
}
