// Package crash carries a panic, or an exit, from the goroutine that it happened on to the goroutine that waits for it: the
// caller of an iterator must see what the loop's body did, on whichever goroutine the iterator ran the body.
package crash

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// A Crash is a panic, or an exit (runtime.Goexit), of a goroutine. A nil Crash is none.
type Crash struct {
	panicked string // the value and the stack of the panic
	exited   bool
}

// Watch runs f. If f panics or exits instead of returning, Watch calls crashed, still on the same goroutine. A panic ends
// there; an exit goes on.
func Watch(f func(), crashed func(*Crash)) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			crashed(&Crash{panicked: fmt.Sprintf("%v\n%s", v, debug.Stack())})
		} else {
			crashed(&Crash{exited: true})
		}
	}()
	f()
	returned = true
}

// Panic returns the value and the stack of the panic as text. ok is false for an exit.
func (c *Crash) Panic() (text string, ok bool) { return c.panicked, !c.exited }

// Repeat does on the caller's goroutine what the crashed goroutine did: it panics with the value and the stack as text, or
// exits. If c is nil, Repeat does nothing.
func (c *Crash) Repeat() {
	switch {
	case c == nil:
	case c.exited:
		runtime.Goexit()
	default:
		panic(c.panicked)
	}
}
