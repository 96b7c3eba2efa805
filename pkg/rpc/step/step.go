// Package step holds the actions and the timer that both ends of a call use to step their protocol
// machine.
package step

import (
	"time"

	"github.com/whence-dev/whence/pkg/rpc/protocol"
)

// Actions are the actions of one step of a machine, in memory of the caller's stack.
type Actions struct {
	Some [4]protocol.Action // more than a step ever has
	N    int
}

// All returns the actions in order.
func (a *Actions) All() []protocol.Action { return a.Some[:a.N] }

// WakeUp returns a timer that calls tick after d, if that is wanted. old is the timer of the step before,
// or nil; it is stopped or used again.
func WakeUp(old *time.Timer, d time.Duration, wanted bool, tick func()) *time.Timer {
	switch {
	case wanted && old == nil:
		return time.AfterFunc(d, tick)
	case wanted:
		old.Reset(d)
	case old != nil:
		old.Stop()
	}
	return old
}
