// Package protocol decides how the two ends of a call end a stream: a Caller is the end that opened the call, a Callee the
// end that serves it.
//
// Both are pure. Step takes an event and the time, and returns actions. The binding (gRPC, or a function call within the
// process) sends and receives messages, runs the engine and keeps the clock; Wake says when a machine needs a Tick. The
// rules:
//
//   - A stop is a message. The caller sends it, half-closes, and awaits the callee's ending. A caller that needs no more
//     does the same with the reason COMPLETED. The call is reset only when the grace has passed.
//   - The grace is a budget. A Stop carries what is left of it, and each hop passes on less than it has, so that the
//     hops of a path end one after another, the last one first, within the grace of the first.
//   - A stop is confirmed only by the callee's own ending of that call. A call that was reset or broke confirms nothing.
//   - A message that cannot be read is answered with INVALID, unless a Stop behind it, or the end of the call, says more
//     within the grace.
//   - A Stop that came before the call was reset is the reason of the ending, even if the reset is noticed first.
//   - An ending is recorded when the caller has been given it, or cannot be.
//
// The stories in testdata are scripts of events with the resulting actions.
package protocol

import "time"

// A Kind is the kind of an event.
type Kind uint8

// The events of both ends.
const (
	Tick Kind = iota // time has passed
	Stop             // the stream is to stop because of Err: on the caller from above, on the callee by the caller's message
	Item             // a message without an ending: from the callee, or from the engine
)

// The events of a Caller alone.
const (
	Open   Kind = iota + 10 // the stream is wanted
	Opened                  // the request was sent
	End                     // a message with the stream's ending
	Left                    // the reader wants no more messages: because of Err, or because it has what it needs
	Untold                  // the Stop could not be sent
	Over                    // the call is over, or could not be opened: Err is its status, nil for OK, and Own reports whether the callee has ended it
)

// The events of a Callee alone.
const (
	Halt       Kind = iota + 20 // the stream was stopped on this hop, because of Err, and is killed after Grace
	Killed                      // the stream was killed on this hop because of Err: nothing more can be sent
	Message                     // a later message of the caller, which is no Stop
	Unreadable                  // a message of the caller could not be read; Err is the ending if nothing else explains it
	HalfClose                   // nothing more will come from the caller
	Lost                        // the call is over before its answer; Err says how
	Sent                        // the message in hand was passed on
	Unsent                      // the message in hand could not be passed on; Err is as for Lost
	Done                        // the engine has ended: with Err, or properly
	Answered                    // the caller was given the ending, or, with Err, could not be
)

// An Event happens to one end of a call.
type Event struct {
	Kind  Kind
	Err   error
	Grace time.Duration // of Stop and Halt: how long the stream may take to end; 0 is not known
	Own   bool          // of Over; of Unreadable: the message is at fault, and the call may end for it
	Part  bool          // of Stop on a Caller: this call is to stop, and the stream goes on without it
}

// A Verb is the kind of an action.
type Verb uint8

// The actions of both ends.
const (
	Deliver Verb = iota // pass the message on
	Drop                // forget the message
)

// The actions of a Caller alone.
const (
	Call        Verb = iota + 10 // open the call and send the request
	SendStop                     // send a Stop with Err and Grace, and half-close
	Reset                        // reset the call, because of Err; Over follows
	Hold                         // keep the message, which has the ending, until the call is over
	DeliverHeld                  // pass on the message that was kept
	Confirm                      // the callee has stopped as it was asked to
	Unconfirmed                  // the call is over, and nobody knows whether the callee has stopped
	Leave                        // the callee is left: what becomes of it does not matter to the stream
	Finish                       // the stream is over, with Err or properly
)

// The actions of a Callee alone.
const (
	StopEngine Verb = iota + 20 // stop the engine because of Err, and kill it after Grace
	Kill                        // kill the engine because of Err
	Put                         // append the caller's message to the request
	CloseInput                  // the request is complete
	Gone                        // the caller has left a stream that was stopped before; Err says how
	Answer                      // give the caller the ending: Err, or the proper one; Answered follows
	Record                      // record the ending: Err, or the proper one
	Abandon                     // end the call without waiting for the message in hand
)

// An Action is an instruction to the binding.
type Action struct {
	Verb  Verb
	Err   error
	Grace time.Duration // of SendStop and StopEngine
}

// DefaultGrace is how long a stopped stream has to deliver its ending.
const DefaultGrace = 250 * time.Millisecond

// minGrace is the least budget that a hop gives the hop below it: one trip across a busy network.
const minGrace = 20 * time.Millisecond

// Budget returns the time that a stopped stream has to end: grace, but at most limit. If grace is 0 (unknown), it is limit.
func Budget(grace, limit time.Duration) time.Duration {
	if grace <= 0 {
		return limit
	}
	return max(minGrace, min(grace, limit))
}

// Below returns the budget that a hop with a budget gives to the hop below: an eighth is for the way back.
func Below(budget time.Duration) time.Duration { return max(minGrace, budget-budget/8) }

// steps is the part that both machines share.
type steps struct {
	grace time.Duration
	wake  time.Duration // 0 is never
	out   []Action
	first [4]Action // of out: no step has more
}

// Wake returns when the machine needs a Tick, on the clock of Step's now, or 0 if time does not matter to it.
func (s *steps) Wake() time.Duration { return s.wake }

func (s *steps) do(verb Verb, err error, grace time.Duration) {
	s.out = append(s.out, Action{verb, err, grace})
}

// begin forgets the actions of the last step.
func (s *steps) begin() { s.out = s.first[:0] }
