package e2e

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// dropIncoming drops every incoming packet of a connection before TCP sees it, as if the network
// had failed. The peer receives neither acknowledgements nor an end.
func dropIncoming(t *testing.T, conn *net.TCPConn) {
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
	t.Cleanup(func() { _ = conn.SetLinger(0) }) // no FIN: the peer is gone
}
