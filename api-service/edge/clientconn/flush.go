package clientconn

// Flush blocks until the client has taken all bytes written. Its errors are those of Write.
func (c *Conn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.gone == nil && !c.released && len(c.behind) > 0 {
		c.settled.Wait()
	}
	if c.gone != nil || c.released {
		return c.why()
	}
	return nil
}

// refill writes bytes that are behind. The connection calls it when it has room; it must not block.
func (c *Conn) refill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != nil || c.released || len(c.behind) == 0 {
		return
	}
	n, err := c.exchange.Send(c.behind)
	if err != nil {
		c.fail(broken(err))
		go c.left(c.gone)
		return
	}
	now := c.now()
	c.behind = c.behind[n:]
	c.taken += int64(n)
	if len(c.behind) > 0 {
		if c.progress += n; c.progress >= piece {
			c.progress = 0
			c.clock.blocked(now) // each piece has its own write timeout
			c.arm(now)
		}
		return
	}
	c.behind = nil
	c.clock.settled()
	c.arm(now)
	c.count(now, c.late)
	c.late = 0
	c.settled.Broadcast()
}
