// Package step holds the actions and the timer that both ends of a call use to step their protocol
// machine.
package step

import (
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/protocol"
)

// Actions has the actions of one step of a machine, in memory of the caller's stack.
type Actions struct {
	Some [4]protocol.Action // no step has more actions
	N    int
}

// All returns the actions in order.
func (a *Actions) All() []protocol.Action { return a.Some[:a.N] }

// WakeUp returns a timer that calls tick after d, if wanted. old is the timer of the previous step,
// or nil. WakeUp stops or reuses it.
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

// Running counts the goroutines that execute the actions of steps, so that the end of a call can
// await them. The zero value counts none.
type Running struct {
	n    int
	idle *sync.Cond // nil until Stop waits
}

// Begin counts a goroutine. The caller holds the machine's mutex.
func (r *Running) Begin() { r.n++ }

// End stops counting a goroutine. mu is the machine's mutex; the caller does not hold it.
func (r *Running) End(mu sync.Locker) {
	mu.Lock()
	defer mu.Unlock()
	if r.n--; r.n == 0 && r.idle != nil {
		r.idle.Broadcast()
	}
}

// Stop stops the timer of WakeUp, which may be nil, and waits until no goroutine executes actions.
// mu is the machine's mutex, which guards *timer; the caller does not hold it. The machine is over,
// so later steps have no actions.
func (r *Running) Stop(mu sync.Locker, timer **time.Timer) {
	mu.Lock()
	defer mu.Unlock()
	if *timer != nil {
		(*timer).Stop()
	}
	for r.n > 0 {
		if r.idle == nil {
			r.idle = sync.NewCond(mu)
		}
		r.idle.Wait()
	}
}
