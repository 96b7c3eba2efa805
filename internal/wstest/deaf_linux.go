package wstest

import "golang.org/x/sys/unix"

// Deafen drops every packet that comes for the client, before TCP sees it: as if a network between had
// died. The server hears neither acknowledgements nor an end.
func (c *Client) Deafen() {
	c.t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	}); err != nil || failed != nil {
		c.t.Fatal(err, failed)
	}
	c.t.Cleanup(func() { _ = c.SetLinger(0) }) // nobody is left to say goodbye to
}
