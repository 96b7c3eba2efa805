// Package protocol decides how the two ends of a call end a stream: a Caller is the end that opens
// the call, a Callee the end that serves it.
//
// Both are pure state machines. Step takes an event and the time, and returns actions. The binding
// (gRPC, or function calls within the process) sends and receives messages, runs the engine and
// keeps the clock; Wake returns when a machine needs a Tick. The rules:
//
//   - A stop is a message. The caller sends it, half-closes, and awaits the callee's ending. A
//     caller that needs no more items does the same with the reason COMPLETED. The caller resets
//     the call only when the grace has passed.
//   - The grace is a budget. A Stop carries what is left of it, and each hop passes on less than it
//     has, so that the hops of a path end one after another, the last hop first, within the
//     grace of the first hop.
//   - Only the callee's own ending of a call confirms a stop of that call. A call that was reset or
//     broke confirms nothing.
//   - A message that cannot be read is answered with INVALID, unless within the grace a Stop after
//     it, or the end of the call, explains it.
//   - A Stop that came before the call was reset is the reason of the ending, even if the reset is
//     noticed first.
//   - An ending is recorded when the caller has received it, or cannot receive it.
//
// The stories in testdata are scripts of events with the resulting actions.
package protocol

import "time"

// A Kind is the kind of an event.
type Kind uint8

// The events of both ends.
const (
	Tick Kind = iota // time has passed
	Stop             // the stream must stop because of Err: on the Caller from above, on the Callee by the caller's message
	Item             // a message without an ending: from the callee, or from the engine
)

// The events of a Caller only.
const (
	Open   Kind = iota + 10 // the stream is wanted
	Opened                  // the request was sent
	End                     // a message with the stream's ending
	Left                    // the reader wants no more messages: because of Err, or because it has all it needs
	Untold                  // the Stop could not be sent
	Over                    // the call is over, or could not be opened: Err is its status, nil for OK, and Own reports whether the callee has ended it
)

// The events of a Callee only.
const (
	Halt       Kind = iota + 20 // the stream was stopped on this hop, because of Err, and is killed after Grace
	Killed                      // the stream was killed on this hop because of Err: no more messages can be sent
	Message                     // a later message of the caller, except a Stop
	Unreadable                  // a message of the caller could not be read; Err is the ending unless a later event explains it
	HalfClose                   // the caller will send no more messages
	Lost                        // the call is over before its answer; Err says how
	Sent                        // the current message was passed on
	Unsent                      // the current message could not be passed on; Err is as for Lost
	Done                        // the engine has ended: with Err, or with an ending
	Answered                    // the caller received the ending, or, with Err, could not receive it
)

// An Event happens to one end of a call.
type Event struct {
	Kind  Kind
	Err   error
	Grace time.Duration // of Stop and Halt: how long the stream may take to end; 0 means unknown
	Own   bool          // of Over; of Unreadable: the message is at fault, and the call may end because of it
	Part  bool          // of Stop on a Caller: only this call stops, and the stream continues without it
}

// A Verb is the kind of an action.
type Verb uint8

// The actions of both ends.
const (
	Deliver Verb = iota // pass the message on
	Drop                // drop the message
)

// The actions of a Caller only.
const (
	Call        Verb = iota + 10 // open the call and send the request
	SendStop                     // send a Stop with Err and Grace, and half-close
	Reset                        // reset the call, because of Err; Over follows
	Hold                         // hold the message, which has the ending, until the call is over
	DeliverHeld                  // pass on the message of Hold
	Confirm                      // the callee has stopped as it was asked to
	Unconfirmed                  // the call is over, and it is unknown whether the callee has stopped
	Leave                        // the callee is abandoned: the rest of the call does not affect the stream
	Finish                       // the stream is over, with Err or with an ending
)

// The actions of a Callee only.
const (
	StopEngine Verb = iota + 20 // stop the engine because of Err, and kill it after Grace
	Kill                        // kill the engine because of Err
	Put                         // append the caller's message to the request
	CloseInput                  // the request is complete
	Gone                        // the caller has left a stream that was stopped before; Err says how
	Answer                      // send the ending to the caller: Err, or the engine's ending; Answered follows
	Record                      // record the ending: Err, or the engine's ending
	Abandon                     // end the call without waiting for the current message
)

// An Action is an instruction to the binding.
type Action struct {
	Verb  Verb
	Err   error
	Grace time.Duration // of SendStop and StopEngine
}

// DefaultGrace is the time in which a stopped stream must deliver its ending.
const DefaultGrace = 250 * time.Millisecond

// minGrace is the smallest budget that a hop gives the hop below: one trip across a busy network.
const minGrace = 20 * time.Millisecond

// Budget returns the time that a stopped stream has to end: grace, but at most limit, and at least
// minGrace. If grace is 0 (unknown), Budget returns limit.
func Budget(grace, limit time.Duration) time.Duration {
	if grace <= 0 {
		return limit
	}
	return max(minGrace, min(grace, limit))
}

// Below returns the budget that a hop with the given budget gives the hop below. It keeps an eighth
// for the way back.
func Below(budget time.Duration) time.Duration { return max(minGrace, budget-budget/8) }

// steps is the common part of both machines.
type steps struct {
	grace time.Duration
	wake  time.Duration // 0 means never
	out   []Action
	first [1]Action // memory of out for most steps
}

// Wake returns when the machine needs a Tick, on the clock of Step's now, or 0 if it needs none.
func (s *steps) Wake() time.Duration { return s.wake }

func (s *steps) do(verb Verb, err error, grace time.Duration) {
	s.out = append(s.out, Action{verb, err, grace})
}

// begin discards the actions of the last step.
func (s *steps) begin() { s.out = s.first[:0] }
