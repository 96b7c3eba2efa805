package restart

import (
	"time"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Kind is the kind of an event.
type Kind uint8

// The events.
const (
	Begin  Kind = iota // the answer is requested
	Item               // the engine below has sent Item; Worker runs the stream
	Over               // the engine below has ended without an ending
	Fail               // the engine below has failed with Err on Worker; Flowing means after its first token
	Stop               // like Fail, after the stream was stopped with Err
	Paid               // the budget allows the restart
	Unpaid             // the budget does not allow it
)

// An Event concerns an answer.
type Event struct {
	Kind    Kind
	Item    *chatv1.GenerateResponse
	Err     error
	Worker  string
	Flowing bool
}

// A Verb is the kind of an action.
type Verb uint8

// The actions. The answer is over after End and Done.
const (
	Ask      Verb = iota // run the engine below; Anew omits the part that another chat-service has delivered
	Pay                  // take a restart from the budget; Paid or Unpaid follows
	Deliver              // pass on the item
	TakeBack             // void N tokens: From lost the answer because of Why, and To restarts it
	End                  // end the answer with Err
	Done                 // the answer has ended
)

// An Action is an instruction for the caller of Step.
type Action struct {
	Verb     Verb
	Anew     bool
	N        int
	From, To string
	Why      *streamerr.Error
	Err      error
}

// A Machine is the state of one choice of a gathered answer. The zero value waits for Begin.
type Machine struct {
	restarts  int
	delivered int              // tokens that were delivered and not taken back
	first     *streamerr.Error // the first loss, which becomes the ending if no restart completes the answer
	firstAt   time.Duration
	lost      *streamerr.Error // the last loss; nil once its tokens are taken back
	from      string           // the worker of the last loss
	last      *streamerr.Error // the last loss
	lastAt    int              // the tokens before it
	failed    Event            // waits for Paid or Unpaid
	over      bool
}

// Over reports whether the answer is over.
func (m *Machine) Over() bool { return m.over }

// Step takes an event and the time on any clock, and returns the action to execute; ok is false if
// there is none. now is used only for Fail and Paid.
func (m *Machine) Step(now time.Duration, e Event) (a Action, ok bool) {
	if m.over {
		return Action{}, false
	}
	switch e.Kind {
	case Begin:
		a = Action{Verb: Ask}
	case Item:
		if a, ok = m.item(e); !ok {
			return a, false
		}
	case Fail:
		m.failed = e
		switch {
		case !e.Flowing || !restarts(streamerr.As(e.Err)) || m.restarts >= Max || m.first != nil && now-m.firstAt > Window, m.repeats(streamerr.As(e.Err)):
			a = m.end(e.Err)
		default:
			a = Action{Verb: Pay}
		}
	case Paid:
		a = m.restart(now)
	case Unpaid:
		a = m.end(m.failed.Err)
	case Stop:
		a = Action{Verb: End, Err: e.Err}
	case Over:
		a = Action{Verb: Done}
	}
	m.over = a.Verb == End || a.Verb == Done || a.Verb == Deliver && e.Item.GetEnd() != nil
	return a, true
}

// item passes on an item. The Started of a restart instead takes back the text of earlier attempts.
func (m *Machine) item(e Event) (a Action, ok bool) {
	if e.Item.GetStarted() == nil || m.restarts == 0 {
		m.delivered += int(e.Item.GetDelta().GetTokens())
		return Action{Verb: Deliver}, true
	}
	if m.lost == nil {
		return a, false // there is no loss to report
	}
	a = Action{Verb: TakeBack, N: m.delivered, From: m.from, To: e.Worker, Why: m.lost}
	m.delivered, m.lost = 0, nil
	return a, true
}

// restart runs the engine below again.
func (m *Machine) restart(now time.Duration) Action {
	m.lost, m.from = streamerr.As(m.failed.Err), m.failed.Worker
	m.last, m.lastAt = m.lost, m.delivered
	if m.first == nil {
		m.first, m.firstAt = m.lost, now
	}
	m.restarts++
	return Action{Verb: Ask, Anew: true}
}

// repeats reports whether a restart has failed like the attempt before it, at the same token: then the answer
// itself is the cause, such as a limit of the engine, and another attempt would cost another answer.
func (m *Machine) repeats(e *streamerr.Error) bool {
	return m.last != nil && m.delivered == m.lastAt && e.Reason == m.last.Reason && e.Text() == m.last.Text()
}

// end ends the answer with the first loss, or with err if there was no loss.
func (m *Machine) end(err error) Action {
	if m.first != nil {
		e := *m.first
		e.Message = streamerr.New(e.Reason, "%s; after %d restarts: %s", e.Text(), m.restarts, streamerr.As(err).Text()).Message
		e.Repeated = e.Repeated || m.repeats(streamerr.As(err))
		err = &e
	}
	return Action{Verb: End, Err: err}
}

// restarts reports whether another attempt may succeed, because the worker or its engine is at
// fault and not the request. A DEADLINE here comes from a worker or its engine: deadlines of this
// hop or of a caller arrive as the cause of a stop.
func restarts(e *streamerr.Error) bool {
	switch e.Reason {
	case streamerr.PeerLost, streamerr.PeerReset, streamerr.Draining, streamerr.Unavailable, streamerr.Overloaded, streamerr.EngineFailed, streamerr.Deadline:
		return true
	default:
		return false
	}
}
