package wstest

import (
	"crypto/tls"
	"net"

	"golang.org/x/sys/unix"
)

// Deafen drops every packet for the client before TCP sees it, as if a network in between had
// failed. The server receives neither acknowledgements nor a FIN.
func (c *Client) Deafen() {
	c.t.Helper()
	raw, err := c.tcp().SyscallConn()
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
	c.t.Cleanup(func() { _ = c.tcp().SetLinger(0) }) // the peer no longer answers
}

// WasReset reports whether the server has reset the connection, without reading or writing
// anything.
func (c *Client) WasReset() (reset bool) {
	c.t.Helper()
	conn := c.Conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err == nil && info.State == unix.BPF_TCP_CLOSE
	}); err != nil {
		c.t.Fatal(err)
	}
	return reset
}
