package protocol

import (
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A CalleeConfig describes a method to a Callee.
type CalleeConfig struct {
	Grace    time.Duration // 0 means DefaultGrace
	Sequence bool          // requests are sequences: each message except a Stop belongs to the request
	Whole    bool          // the answer is one message, sent by Answer: the stream has not completed before that
}

// A Callee is the end of a call that serves it. Its events begin after the request.
type Callee struct {
	steps
	config CalleeConfig

	stopped    error // the cause of the stop; nil while the stream runs
	killed     bool
	kill       time.Duration // when to kill the engine; 0 means never
	unreadable error         // a message could not be read, and no later event has explained that yet
	refused    bool          // unreadable is certainly the fault of the caller's message
	lost       error         // the call is over before its answer, and not because this end abandoned the current message
	known      bool          // the hop knows lost: as the cause of its stop, or from Gone
	settle     time.Duration // when unreadable or lost takes effect; 0 means never
	deaf       bool          // no more messages can arrive from the caller

	sending   bool // a message is being sent
	abandoned bool // that message was abandoned
	done      bool // the engine has ended
	ending    error
	over      bool // the ending has been recorded
}

// NewCallee returns the machine of a call whose request has arrived.
func NewCallee(c CalleeConfig) *Callee {
	if c.Grace <= 0 {
		c.Grace = DefaultGrace
	}
	return &Callee{config: c, steps: steps{grace: c.Grace}}
}

// Over reports whether the ending has been recorded.
func (c *Callee) Over() bool { return c.over }

// Lost reports whether the call is over, so that the caller cannot be answered.
func (c *Callee) Lost() bool { return c.lost != nil }

// Abandoned reports whether the current message was abandoned.
func (c *Callee) Abandoned() bool { return c.abandoned }

// Step takes an event and returns the actions to execute, in order. The slice is valid until the
// next Step. Item and Sent do not use now.
func (c *Callee) Step(now time.Duration, e Event) []Action {
	c.begin()
	if c.over {
		return nil
	}
	switch e.Kind {
	case Item:
		c.item()
		return c.out
	case Sent:
		c.sent()
		return c.out
	case Stop:
		c.stop(now, e.Err, e.Grace)
	case Halt:
		c.halt(now, e)
	case Killed:
		if c.stopped == nil {
			c.stopped = e.Err
		}
		c.end(c.stopped)
	case Message:
		c.message(now)
	case Unreadable:
		c.garbled(now, e)
	case HalfClose:
		c.hushed(now)
	case Unsent:
		c.sending = false
		c.lose(now, e.Err)
	case Lost:
		c.lose(now, e.Err)
	case Done:
		c.finish(e.Err)
	case Answered:
		c.answered(e.Err)
	case Tick:
		c.tick(now)
	default:
	}
	c.plan()
	return c.out
}

// plan sets the time of the next Tick.
func (c *Callee) plan() {
	c.wake = 0
	for _, at := range []time.Duration{c.kill, c.settle} {
		if at > 0 && (c.wake == 0 || at < c.wake) && !c.done {
			c.wake = at
		}
	}
}

func (c *Callee) item() {
	if c.abandoned || c.killed {
		c.do(Drop, nil, 0)
		return
	}
	c.sending = true
	c.do(Deliver, nil, 0)
}

// sent drops a message that was passed on too late: the caller was told that the stream was
// stopped.
func (c *Callee) sent() {
	c.sending = false
	if c.abandoned {
		c.do(Drop, nil, 0)
	}
}

// stop stops the engine, unless it was stopped before: the first cause wins.
func (c *Callee) stop(now time.Duration, cause error, grace time.Duration) {
	c.unreadable, c.refused = nil, false
	if c.lost == nil {
		c.settle = 0
	}
	if c.stopped != nil || c.done {
		return
	}
	budget := Budget(grace, c.grace)
	c.stopped, c.kill = cause, now+budget
	c.do(StopEngine, cause, budget)
}

// halt records that the engine was stopped on this hop.
func (c *Callee) halt(now time.Duration, e Event) {
	if c.stopped == nil {
		c.stopped, c.kill = e.Err, now+Budget(e.Grace, c.grace)
		c.unreadable, c.refused = nil, false
	}
}

func (c *Callee) message(now time.Duration) {
	if c.config.Sequence {
		c.do(Put, nil, 0)
		return
	}
	c.stop(now, streamerr.New(streamerr.Invalid, "only the first message may be a request"), 0)
}

// garbled records that a message could not be read.
func (c *Callee) garbled(now time.Duration, e Event) {
	switch {
	case c.stopped != nil || c.unreadable != nil:
	case c.lost == nil:
		c.unreadable, c.refused, c.settle = e.Err, e.Own, now+c.grace
	case e.Own && c.settle > 0:
		c.lost = e.Err
	}
}

// hushed records that no more messages can arrive from the caller. If the call is over, no Stop
// will explain that.
func (c *Callee) hushed(now time.Duration) {
	if c.deaf {
		return
	}
	c.deaf = true
	if c.config.Sequence && c.unreadable == nil && c.lost == nil {
		c.do(CloseInput, nil, 0)
	}
	if c.lost != nil {
		c.give(now)
	}
}

// lose records that the call is over. Messages that came before the end may be unread, and a Stop
// among them has the cause.
func (c *Callee) lose(now time.Duration, how error) {
	if c.lost != nil || c.abandoned {
		return
	}
	c.lost = how
	if c.refused { // the library has ended the call because of the message
		c.lost = c.unreadable
	}
	c.unreadable, c.refused = nil, false
	if c.deaf {
		c.give(now)
		return
	}
	c.settle = now + c.grace
}

// give stops waiting for a message that explains the end of the call.
func (c *Callee) give(now time.Duration) {
	c.settle = 0
	if c.stopped != nil {
		c.leave()
		return
	}
	c.known = true
	c.stop(now, c.lost, 0)
}

// leave tells the hop that the caller of a stopped stream has gone, unless the hop knows.
func (c *Callee) leave() {
	if c.lost != nil && !c.known {
		c.known = true
		c.do(Gone, c.lost, 0)
	}
}

func (c *Callee) tick(now time.Duration) {
	if c.settle > 0 && now >= c.settle {
		c.settle = 0
		switch {
		case c.lost != nil:
			c.deaf = true
			c.give(now)
		case c.unreadable != nil:
			c.stop(now, c.unreadable, 0)
		}
	}
	if c.kill > 0 && now >= c.kill {
		c.end(c.stopped)
	}
}

// end kills the engine and abandons the current message: the caller does not read, and the call
// ends only when its handler returns.
func (c *Callee) end(cause error) {
	c.kill = 0
	if c.done {
		return
	}
	if !c.killed {
		c.killed = true
		c.do(Kill, cause, 0)
	}
	if c.sending && !c.abandoned {
		c.abandoned = true
		c.do(Abandon, cause, 0)
		c.leave() // the caller either is told the ending or has gone
	}
}

// finish answers the caller with the ending, unless the call is over.
func (c *Callee) finish(err error) {
	if c.done {
		return
	}
	c.done, c.ending = true, err
	c.settle, c.kill = 0, 0
	if c.lost != nil || c.abandoned {
		switch {
		case err != nil:
		case c.abandoned: // as the caller was told
			c.ending = c.stopped
		case c.config.Whole:
			c.ending = c.lost
		}
		c.record()
		if c.stopped != nil {
			c.leave()
		}
		return
	}
	c.do(Answer, err, 0)
}

// answered records the ending. If the answer could not be sent, a completed stream is recorded as
// failed.
func (c *Callee) answered(failed error) {
	if !c.done {
		return
	}
	if failed != nil && c.ending == nil {
		c.ending = failed
	}
	c.record()
}

func (c *Callee) record() {
	c.over = true
	c.do(Record, c.ending, 0)
}
