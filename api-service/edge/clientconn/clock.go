package clientconn

import (
	"math"
	"time"
)

// endingTimeout is how long a client may be behind once its stream is stopped.
const endingTimeout = 250 * time.Millisecond

// looks is the number of socket checks per client timeout.
const looks = 8

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// A clock decides which duty of a connection is due, and when. It is a pure state machine: its
// methods record events, and never read the time. All times count from when the connection was
// taken. The connection's single timer asks the clock what to do.
type clock struct {
	writeTimeout  time.Duration // for a write that waits for the client; 0 means no bound
	clientTimeout time.Duration // for an acknowledgement of the client's machine; 0 means no bound
	keepAlive     time.Duration // time without an event before a comment is sent; 0 means no comments

	first   time.Duration // when the headers go out without an event; never once they are sent
	comment bool          // comments are sent
	wrote   time.Duration // the last write
	waits   time.Duration // start of the oldest pending write, or never
	behind  time.Duration // when the client fell behind; never while no write is pending
	stopped time.Duration // when the stream was stopped
	ended   bool          // the grace of the stopped stream is over
	look    time.Duration // when to check the socket next
	silent  time.Duration // start of the oldest unacknowledged data, or never
}

// A duty is an action that a connection has to take.
type duty int

const (
	rest    duty = iota
	speak        // send a comment, after the headers if they have not been sent
	look         // ask the kernel whether the client's machine acknowledges data, and call looked
	tooSlow      // the client has not read for the write timeout
	cut          // the client does not read the ending of its stream
)

func newClock(writeTimeout, clientTimeout time.Duration) clock {
	c := clock{writeTimeout: writeTimeout, clientTimeout: clientTimeout, first: never, waits: never, behind: never, stopped: never, look: never, silent: never}
	if clientTimeout > 0 {
		c.look = clientTimeout / looks
	}
	return c
}

// open starts the comments. The headers are due at first.
func (c *clock) open(first, keepAlive time.Duration) {
	c.comment, c.first, c.keepAlive = true, first, keepAlive
}

// opened records that the headers have been sent.
func (c *clock) opened() { c.first = never }

// close stops the comments.
func (c *clock) close() { c.comment, c.first = false, never }

// blocked records that a write begins to wait for the client, which may have taken another part
// just before.
func (c *clock) blocked(now time.Duration) { c.waits, c.behind = now, min(c.behind, now) }

// settled records that the client has taken all of the answer so far.
func (c *clock) settled() { c.waits, c.behind = never, never }

// stop records that the stream is stopped.
func (c *clock) stop(now time.Duration) { c.stopped = min(c.stopped, now) }

// resume records that the connection has another stream, which is not stopped.
func (c *clock) resume() { c.stopped, c.ended = never, false }

// end records that the grace of the stopped stream is over.
func (c *clock) end() { c.ended = true }

// looked takes the kernel's report: whether all sent data is acknowledged, and how long ago the
// client's machine last acknowledged data. It reports whether the client has been silent for too
// long.
func (c *clock) looked(now time.Duration, all bool, ago time.Duration) (vanished bool) {
	c.look = now + c.clientTimeout/looks
	switch {
	case all:
		c.silent = never
	case c.silent == never || c.silent < now-ago:
		c.silent = now
	default:
		return now-c.silent >= c.clientTimeout
	}
	return false
}

// next returns the duty that is due first, and its time.
func (c *clock) next() (d duty, at time.Duration) {
	d, at = rest, never
	sooner := func(other duty, when time.Duration) {
		if when < at {
			d, at = other, when
		}
	}
	if c.waits != never {
		if c.writeTimeout > 0 {
			sooner(tooSlow, c.waits+c.writeTimeout)
		}
		if c.stopped != never {
			sooner(cut, max(c.behind, c.stopped)+endingTimeout)
			if c.ended && c.behind < c.stopped {
				sooner(cut, 0)
			}
		}
	}
	sooner(look, c.look)
	if c.comment {
		sooner(speak, c.first)
		if c.first == never && c.keepAlive > 0 && c.waits == never {
			sooner(speak, c.wrote+c.keepAlive)
		}
	}
	return d, at
}
