package clientconn

import "github.com/whence-dev/whence/internal/prefetch"

// Touched implements prefetch.Toucher.
func (c *Conn) Touched() []prefetch.Memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []prefetch.Memory{prefetch.Of(c), prefetch.Of(c.socket), prefetch.Func(c.sent)}
}
