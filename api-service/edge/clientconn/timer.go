package clientconn

import (
	"fmt"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// arm sets the timer if something is due before it fires. mu is held.
func (c *Conn) arm(now time.Duration) {
	if _, at := c.clock.next(); at < c.armed && !c.released && c.gone == nil && c.timer != nil {
		c.armed = at
		c.timer.Reset(at - now)
	}
}

// tick executes the duties that are due. It runs on the Clock's goroutine and must not block, so
// left runs on a goroutine of its own.
func (c *Conn) tick() {
	c.mu.Lock()
	c.armed = never
	before := c.gone
	for !c.released && c.gone == nil {
		now := c.now()
		due, at := c.clock.next()
		if at > now {
			c.arm(now)
			break
		}
		c.do(due, now)
	}
	gone := c.gone
	c.mu.Unlock()
	if gone != before {
		go c.left(gone)
	}
}

// do executes one duty. mu is held.
func (c *Conn) do(due duty, now time.Duration) {
	switch due {
	case speak:
		_ = c.write(c.ping(), 0, Mark{}, now) // c.gone has the error
	case look:
		all, ago, err := c.exchange.Acknowledged()
		if err != nil {
			c.clock.look = never // the system does not report acknowledgements
		} else if c.clock.looked(now, all, ago) {
			gone := Gone()
			gone.Message = fmt.Sprintf("the client's machine has not answered for %v", c.clock.clientTimeout)
			c.fail(gone)
		}
	case tooSlow:
		c.fail(&streamerr.Error{Reason: streamerr.SlowReader, Message: fmt.Sprintf("the client did not read for %v", c.writeTimeout)})
	case cut:
		c.fail(Gone())
	case rest: // nothing is due
	}
}

// stopTimer stops the timer for good. mu is held.
func (c *Conn) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
	}
}
