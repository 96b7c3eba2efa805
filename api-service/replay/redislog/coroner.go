package redislog

import (
	"slices"
	"time"
)

// redialPause is the longest time that a Redis client waits after failed attempts before it dials
// again.
const redialPause = time.Second

// A coroner decides which instances are dead. It reads no clock and makes no calls. Its methods are
// for one goroutine.
//
// An instance is dead if it has had no lease in two beats in a row, and if the server has answered
// every beat for two leases and redialPause. So instances keep their streams while the server, or
// the network to it, is down: when the server is back, each instance can extend its lease before
// another instance takes its streams. A late beat means that this process, and maybe the whole
// machine, had no CPU: then the other instances get the full time again.
type coroner struct {
	Lease time.Duration // how long a lease lasts; a beat occurs every eighth of that time

	last     time.Time // the last beat; zero before the first
	steady   time.Time // since when the server has answered every beat in time; zero if it did not answer the last beat
	suspects []string  // the instances without a lease in the last beat
}

// Examine takes the server's answer to one beat, which is the list of the instances without a
// lease, and returns the dead instances.
func (c *coroner) Examine(now time.Time, without []string, err error) (dead []string) {
	before, late := c.suspects, !c.last.IsZero() && now.Sub(c.last) > c.Lease/2
	c.last, c.suspects = now, nil
	if err != nil || late {
		before, c.steady = nil, time.Time{}
	}
	if err != nil {
		return nil
	}
	if c.steady.IsZero() {
		c.steady = now
	}
	c.suspects = without
	if now.Sub(c.steady) < 2*c.Lease+redialPause {
		return nil
	}
	for _, run := range without {
		if slices.Contains(before, run) {
			dead = append(dead, run)
		}
	}
	return dead
}
