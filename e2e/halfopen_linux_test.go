package e2e

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// deafen drops every packet that comes for a connection, before TCP sees it: as if a network between had died. The peer
// hears neither acknowledgements nor an end.
func deafen(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	t.Cleanup(func() { _ = conn.SetLinger(0) }) // nobody is left to say goodbye to
}
