package mux

import (
	"time"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// ping sends a PING when the peer was silent for PingEvery, and ends the connection when the peer
// stays silent.
func (c *Conn) ping() {
	timer := time.NewTimer(c.opts.PingEvery)
	defer timer.Stop()
	for asked := false; ; {
		select {
		case <-c.done:
			return
		case <-timer.C:
		}
		switch {
		case c.heard.Swap(false):
			asked = false
			timer.Reset(c.opts.PingEvery)
		case asked:
			c.Fail(ErrSilent)
			return
		default:
			asked = true
			c.control(func(b []byte) []byte { return frame.AppendPing(b, frame.Ping, 0) })
			timer.Reset(c.opts.PingTimeout)
		}
	}
}

// pong answers a PING. If the peer does not read, the answers accumulate until maxControl bytes wait,
// which ends the connection.
func (c *Conn) pong(number uint64) {
	c.control(func(b []byte) []byte { return frame.AppendPing(b, frame.Pong, number) })
}
