// Package pulse notices that a client has vanished without a word: its machine has lost power, or a network between has
// dropped the connection.
//
// Writes to such a client succeed until the kernel's buffer is full, for a quarter of an hour; what tells is that nothing is
// acknowledged any more. TCP_USER_TIMEOUT would tell, too, but takes a client that does not read for one that is gone.
package pulse

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/network/netpoll"
)

// A pulse is a client that is watched.
type pulse struct {
	timeout time.Duration
	gone    func(message string)
	conn    network.Conn
	fd      int

	mu     sync.Mutex // guards the following fields
	timer  *time.Timer
	silent time.Time // since when something is unacknowledged and nothing was; zero if not so
	over   bool      // the handler no longer owns the connection, and fd may be another's
}

// checks is how often a client is looked at within the timeout.
const checks = 8

// ProbeEvery is how long a connection on which nothing is in flight goes unprobed, such as that of a request that waits for
// its first token, and how long each of the probes may take.
const ProbeEvery = 10 * time.Second

// Tune prepares a new connection: unsent is how many bytes may wait in the kernel for a slow client before writes to it block;
// 0 is the system's limit.
func Tune(conn net.Conn, unsent int) error {
	fd, ok := socket(conn)
	if !ok {
		return nil
	}
	return tune(fd, unsent)
}

// socket returns the descriptor of a connection of netpoll, which is valid while a handler of the connection runs.
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

// Feel begins to watch the client of a connection. When it has acknowledged nothing for the timeout, gone is told, and the
// connection is closed; 0 is never. The connection's handler calls end before it returns.
func Feel(conn network.Conn, timeout time.Duration, gone func(message string)) (end func()) {
	fd, ok := socket(conn)
	if !ok || timeout == 0 {
		return func() {}
	}
	p := &pulse{timeout: timeout, gone: gone, conn: conn, fd: fd}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(timeout/checks, p.check)
	return p.end
}

func (p *pulse) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.timer.Stop()
}

func (p *pulse) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	all, ago, err := acknowledged(p.fd)
	now := time.Now()
	switch {
	case err != nil:
		return // not a socket that can be asked
	case all || p.silent.Before(now.Add(-ago)):
		p.silent = time.Time{}
		if !all {
			p.silent = now
		}
	case now.Sub(p.silent) >= p.timeout:
		p.gone(fmt.Sprintf("the client's machine has not answered for %v", p.timeout))
		_ = p.conn.Close() // a write may be blocked; netpoll closes it when the handler has returned
		return
	}
	p.timer.Reset(p.timeout / checks)
}
