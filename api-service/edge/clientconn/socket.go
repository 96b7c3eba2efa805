package clientconn

import (
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/network/netpoll"
)

// ProbeEvery is the time between probes of an idle connection, such as the connection of a request
// that waits for its first token. It is also the timeout of a probe.
const ProbeEvery = 10 * time.Second

// Tune prepares a new connection: unsent is how many bytes may wait in the kernel for a slow client
// before writes to it block; 0 is the system's limit.
func Tune(conn net.Conn, unsent int) error {
	fd, ok := socket(conn)
	if !ok {
		return nil
	}
	return tune(fd, unsent)
}

// socket returns the descriptor of a connection of netpoll, which is valid while a handler of the
// connection runs.
func socket(conn net.Conn) (fd int, ok bool) {
	outer, ok := conn.(*netpoll.Conn)
	if !ok {
		return 0, false
	}
	inner, ok := outer.Conn.(interface{ Fd() int })
	if !ok {
		return 0, false
	}
	return inner.Fd(), true
}
