package overhttp

import (
	"sync"
	"time"

	"github.com/whence-dev/whence/internal/nowait"
)

const (
	// maxIdle bounds the idle connections. Others are closed.
	maxIdle = 256
	// maxIdleTime is less than the time after which common servers close an idle connection: 5 s for
	// uvicorn and llama.cpp. Each request, and so each health probe, closes those that are older.
	maxIdleTime = 4 * time.Second
)

// A pool keeps the connections whose last response has ended.
type pool struct {
	mu       sync.Mutex         // guards the following fields
	idle     []*conn            // idle for longest first
	draining map[*conn]struct{} // by goroutines of drains
	closed   bool

	drains sync.WaitGroup
}

// take returns the connection that was used last, or nil if none can be used. The server may have
// closed it, or sent what no request has asked for: then it is closed here, too. A connection of which that
// cannot be known, such as a connection in memory, is used only once.
func (p *pool) take() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	for n := len(p.idle); n > 0; n = len(p.idle) {
		c := p.idle[n-1]
		p.idle[n-1], p.idle = nil, p.idle[:n-1]
		if nowait.Silent(c.tcp) {
			return c
		}
		_ = c.Close() // it is of no use, whatever happens
	}
	return nil
}

// give returns a connection whose answer is complete. It does not wait for the end of the response.
func (p *pool) give(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || c.once {
		_ = c.Close() // the answer is complete
		return
	}
	if p.draining == nil {
		p.draining = make(map[*conn]struct{})
	}
	p.draining[c] = struct{}{}
	p.drains.Go(func() { p.put(c, c.drain()) })
}

// put keeps a drained connection if it is reusable.
func (p *pool) put(c *conn, reusable bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.draining, c)
	p.expire()
	if !reusable || p.closed || len(p.idle) == maxIdle {
		_ = c.Close() // the answer is complete
		return
	}
	c.since = time.Now()
	p.idle = append(p.idle, c)
}

// expire closes the connections that were idle for too long.
func (p *pool) expire() {
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].since) > maxIdleTime {
		_ = p.idle[old].Close() // nothing uses it
		old++
	}
	p.idle = append(p.idle[:0], p.idle[old:]...)
}

// flush closes the idle connections.
func (p *pool) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		_ = c.Close() // nothing uses it
	}
	p.idle = nil
}

// close closes the connections that no request uses. Those of later answers are closed, too.
func (p *pool) close() {
	p.flush()
	p.mu.Lock()
	p.closed = true
	for c := range p.draining {
		_ = c.Close() // the answer is complete
	}
	p.mu.Unlock()
	p.drains.Wait()
}
