package mux

import (
	"time"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// doubtTimeout is the time that a peer has to send anything after Doubt.
const doubtTimeout = time.Second

// ping sends a PING when the peer has been silent for PingEvery, and ends the connection when the
// peer stays silent for another PingTimeout. It checks at intervals of the shorter of the two, so
// that an answer restarts the count. After a pause of this process it waits another interval,
// because bytes that arrived meanwhile are unread.
func (c *Conn) ping() {
	every := min(c.opts.PingEvery, c.opts.PingTimeout)
	ask := max(1, int(c.opts.PingEvery/every))
	fail := ask + max(1, int(c.opts.PingTimeout/every))
	timer := time.NewTimer(every)
	defer timer.Stop()
	var doubted <-chan time.Time // fires when the answer to Doubt's PING is due; nil if there is no such PING
	answered := false            // the peer has sent something since that PING
	silent, last := 0, time.Now()
	for {
		select {
		case <-c.done:
			return
		case <-c.doubt:
			if doubted != nil {
				continue // the peer has not answered yet
			}
			if c.heard.Swap(false) {
				silent = 0
			}
			answered = false
			c.askPeer()
			doubted = time.After(doubtTimeout)
			continue
		case <-doubted:
			if doubted = nil; !answered && !c.heard.Load() {
				c.Fail(ErrSilent)
				return
			}
			continue
		case <-timer.C:
		}
		timer.Reset(every)
		now := time.Now()
		paused := now.Sub(last) > 2*every
		last = now
		switch {
		case c.heard.Swap(false):
			silent, answered = 0, true
			continue
		case paused:
			continue
		}
		switch silent++; silent {
		case ask:
			c.askPeer()
		case fail:
			c.Fail(ErrSilent)
			return
		}
	}
}

func (c *Conn) askPeer() {
	c.control(func(b []byte) []byte { return frame.AppendPing(b, frame.Ping, 0) })
}

// Doubt sends a PING, and ends the connection if the peer sends nothing within a second. It does
// not block.
func (c *Conn) Doubt() {
	select {
	case c.doubt <- struct{}{}:
	default: // a PING is already due
	}
}

// pong answers a PING. If the peer does not read, the answers accumulate until maxControl bytes
// wait, which ends the connection.
func (c *Conn) pong(number uint64) {
	c.control(func(b []byte) []byte { return frame.AppendPing(b, frame.Pong, number) })
}
