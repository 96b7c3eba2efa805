package protocol

import (
	"cmp"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A CallerConfig describes a method to a Caller.
type CallerConfig struct {
	Self, Peer string
	Grace      time.Duration // 0 means DefaultGrace
	Mute       bool          // messages have no room for a Stop: the caller stops a stream by resetting its call
	Endless    bool          // messages have no room for an ending: a stream completes when its call ends
	Unary      bool          // the call is its request: it is open once it is made, without Opened
}

// errEnded resets a call whose callee sent the ending but did not close the call within the grace.
var errEnded error = streamerr.New(streamerr.Completed, "the stream has ended")

// errServed is why a reader leaves that gives no reason.
var errServed error = streamerr.New(streamerr.Completed, "the reader has what it needs")

type callerPhase uint8

const (
	idle    callerPhase = iota // there is no call
	opening                    // the request is being sent
	open                       // messages arrive
	ending                     // the message with the ending has arrived, but the end of the call has not
	over
)

// A Caller is the end of a call that opens it. Its first event is Open.
type Caller struct {
	steps
	config CallerConfig

	phase   callerPhase
	stopped error // why the stream was stopped from above
	left    error // why the reader left
	part    bool  // only the call was stopped; the stream continues without it
	told    bool  // the Stop was sent
	reset   bool  // by this end
}

// NewCaller returns the machine of a call.
func NewCaller(c CallerConfig) *Caller {
	if c.Grace <= 0 {
		c.Grace = DefaultGrace
	}
	return &Caller{config: c, steps: steps{grace: c.Grace}}
}

// Over reports whether the stream is over.
func (c *Caller) Over() bool { return c.phase == over }

// Step takes an event and returns the actions to execute, in order. The slice is valid until the
// next Step. Item does not use now.
func (c *Caller) Step(now time.Duration, e Event) []Action {
	c.begin()
	if c.phase == over {
		return nil
	}
	switch e.Kind {
	case Item:
		c.item()
	case Open:
		c.open()
	case Opened:
		if c.phase == opening { // otherwise the callee was faster
			c.phase = open
			c.tell(now)
		}
	case End:
		c.end(now)
	case Stop:
		c.stop(now, e)
	case Left:
		c.leave(now, e.Err)
	case Over:
		c.close(e)
	case Untold:
		c.cut(c.why())
	case Tick:
		if c.wake > 0 && now >= c.wake {
			c.cut(cmp.Or(c.why(), errEnded))
		}
	default:
	}
	return c.out
}

func (c *Caller) open() {
	if c.stopped != nil {
		c.finish(c.stopped)
		return
	}
	c.phase = opening
	if c.config.Unary {
		c.phase = open
	}
	c.do(Call, nil, 0)
}

func (c *Caller) item() {
	switch {
	case c.phase == ending:
		c.tooMuch()
	case c.left != nil || c.reset:
		c.do(Drop, nil, 0)
	default:
		c.do(Deliver, nil, 0)
	}
}

// end holds the ending until the callee has ended the call, so that the callee has forgotten the
// stream when the reader gets the ending.
func (c *Caller) end(now time.Duration) {
	if c.phase == ending {
		c.tooMuch()
		return
	}
	c.phase = ending
	if c.wake == 0 {
		c.wake = now + c.grace
	}
	c.do(Hold, nil, 0)
}

func (c *Caller) tooMuch() {
	err := streamerr.New(streamerr.Internal, "%s sent a message after its ending", c.config.Peer)
	c.cut(err)
	c.finish(err)
}

// stop records why the stream must end. After the ending has arrived, the callee needs no Stop.
func (c *Caller) stop(now time.Duration, e Event) {
	if c.stopped != nil || c.left != nil {
		return
	}
	c.stopped, c.part = e.Err, e.Part
	if c.phase == idle || c.phase == ending {
		return
	}
	if e.Part {
		c.do(Leave, nil, 0)
	}
	budget := Budget(e.Grace, c.grace)
	c.wake = now + budget
	c.tell(now)
}

func (c *Caller) leave(now time.Duration, why error) {
	if c.left != nil {
		return
	}
	c.left = cmp.Or(why, errServed)
	if c.stopped != nil || c.phase == ending {
		return // the callee knows, or need not know
	}
	c.do(Leave, nil, 0)
	c.wake = now + c.grace
	c.tell(now)
}

// why returns the cause for the callee, or nil while the stream is wanted.
func (c *Caller) why() error {
	if c.stopped != nil {
		return c.stopped
	}
	return c.left
}

// tell sends the Stop if there is a cause and the call is open.
func (c *Caller) tell(now time.Duration) {
	switch {
	case c.why() == nil || c.told || c.reset:
	case c.config.Mute:
		c.cut(c.why())
	case c.phase == open:
		c.told = true
		c.do(SendStop, c.why(), Below(c.wake-now))
	}
}

func (c *Caller) cut(why error) {
	c.wake = 0
	if c.reset {
		return
	}
	c.reset = true
	c.do(Reset, why, 0)
}

func (c *Caller) close(e Event) {
	own := e.Own && !c.reset
	if c.stopped != nil && !c.part && c.phase != idle {
		if own {
			c.do(Confirm, nil, 0)
		} else {
			c.do(Unconfirmed, nil, 0)
		}
	}
	switch {
	case c.phase == ending && (!own || e.Err == nil):
		// A callee that is slow to end the call, or is lost before that, has already sent the
		// ending.
		if c.left == nil {
			c.do(DeliverHeld, nil, 0)
		}
		c.finish(nil)
	case c.stopped != nil:
		c.finish(c.stopped)
	case c.phase == ending:
		c.finish(e.Err)
	case c.left != nil:
		c.finish(nil)
	case e.Err == nil && !c.config.Endless:
		c.finish(&streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(c.config.Peer), Message: "the peer closed the stream without an ending"})
	default:
		c.finish(e.Err)
	}
}

func (c *Caller) finish(err error) {
	c.phase, c.wake = over, 0
	c.do(Finish, err, 0)
}
