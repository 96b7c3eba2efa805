package clientconn

import "github.com/whence-dev/whence/internal/prefetch"

// Touched implements prefetch.Toucher.
func (c *Conn) Touched(to *prefetch.List) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to.Add(prefetch.Of(c), prefetch.Func(c.sent))
	c.exchange.Touched(to)
}
