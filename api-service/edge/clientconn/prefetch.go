package clientconn

import "github.com/whence-dev/whence/internal/prefetch"

// Touched implements prefetch.Toucher.
func (c *Conn) Touched() []prefetch.Memory {
	return []prefetch.Memory{prefetch.Of(c), prefetch.Of(c.socket)}
}
