// Package crash carries a panic, or an exit, from the goroutine on which it occurred to the
// goroutine that waits for it. The caller of an iterator must see a panic of its loop body on
// whichever goroutine the iterator ran the body.
package crash

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// A Crash is a panic or an exit (runtime.Goexit) of a goroutine. A nil Crash means neither.
type Crash struct {
	panicked string // the value and the stack of the panic
	exited   bool
}

// Watch runs f. If f panics or exits instead of returning, Watch calls crashed on the same
// goroutine. It recovers from a panic; an exit continues.
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

// Repeat repeats the crash on the caller's goroutine: it panics with the value and the stack as
// text, or exits. If c is nil, Repeat does nothing.
func (c *Crash) Repeat() {
	switch {
	case c == nil:
	case c.exited:
		runtime.Goexit()
	default:
		panic(c.panicked)
	}
}
