// Package coroner decides which instances of a service are dead. It reads no clock and makes no calls.
package coroner

import "time"

// RedialPause is the longest time for which a Redis client does not dial after failed attempts.
const RedialPause = time.Second

// A Coroner decides which instances are dead. Its methods are for one goroutine.
//
// An instance is dead if it has had no lease in all beats of the last half of a lease, and if the server has
// answered every beat for two leases and RedialPause. So instances keep their streams while the server, or the
// way to it, fails: when the server is back, each can extend its lease before another one takes its streams.
// A beat that comes late says that this process, and maybe the whole machine, had no CPU: the other instances
// get their time anew.
type Coroner struct {
	Lease time.Duration // how long an instance has a lease; a beat comes at least twice within it

	last     time.Time            // of the last beat; zero before the first
	steady   time.Time            // since when the server has answered every beat in time; zero if it has not answered the last one
	suspects map[string]time.Time // the instances that had no lease in the last beat, and since when
}

// Examine takes the answer of the server to one beat, which is the list of the instances without a lease,
// and returns those that are dead.
func (c *Coroner) Examine(now time.Time, without []string, err error) (dead []string) {
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
	c.suspects = make(map[string]time.Time, len(without))
	for _, run := range without {
		since, known := before[run]
		if !known {
			since = now
		}
		c.suspects[run] = since
		if now.Sub(since) >= c.Lease/2 && now.Sub(c.steady) >= 2*c.Lease+RedialPause {
			dead = append(dead, run)
		}
	}
	return dead
}
