package edge

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/network/netpoll"

	"github.com/whence-dev/whence/pkg/stream"
)

// A pulse notices that a client has vanished without a word: its machine has lost power, or a network between has dropped
// the connection. Writes to such a client succeed until the kernel's buffer is full, for a quarter of an hour; what tells is
// that nothing is acknowledged any more. TCP_USER_TIMEOUT would tell, too, but takes a client that does not read for one
// that is gone.
type pulse struct {
	config *Config
	ctl    *stream.Control
	conn   network.Conn
	fd     int

	mu     sync.Mutex // guards the following fields
	timer  *time.Timer
	silent time.Time // since when something is unacknowledged and nothing was; zero if not so
	over   bool      // the handler no longer owns the connection, and fd may be another's
}

// checks is how often a client is looked at within Config.ClientTimeout.
const checks = 8

// probeEvery is how long a connection on which nothing is in flight goes unprobed, such as that of a request that waits for
// its first token, and how long each of the probes may take.
const probeEvery = 10 * time.Second

// accepted prepares a new connection.
func (e *Edge) accepted(conn net.Conn) context.Context {
	if fd, ok := socket(conn); ok {
		if err := tune(fd, e.config.MaxUnsent); err != nil {
			e.log.Debug("socket options", "err", err) // it is gone, or is not TCP
		}
	}
	return context.Background()
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

// feel begins to watch the client of a stream. The handler calls end before it returns.
func (e *Edge) feel(c *app.RequestContext, ctl *stream.Control) (end func()) {
	fd, ok := socket(c.GetConn())
	if !ok || e.config.ClientTimeout == 0 {
		return func() {}
	}
	p := &pulse{config: &e.config, ctl: ctl, conn: c.GetConn(), fd: fd}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(e.config.ClientTimeout/checks, p.check)
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
	case now.Sub(p.silent) >= p.config.ClientTimeout:
		g := gone()
		g.Message = fmt.Sprintf("the client's machine has not answered for %v", p.config.ClientTimeout)
		p.ctl.Stop(g)
		_ = p.conn.Close() // a write may be blocked; netpoll closes it when the handler has returned
		return
	}
	p.timer.Reset(p.config.ClientTimeout / checks)
}
