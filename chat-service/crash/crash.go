// Package crash carries a panic, or an exit, from the goroutine on which it occurred to the
// goroutine that waits for it. The caller of an iterator must see a panic of its loop body on
// whichever goroutine the iterator ran the body.
package crash

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/whence-dev/whence/internal/panicvalue"
)

// A Crash is a panic or an exit (runtime.Goexit) of a goroutine. A nil Crash means neither.
type Crash struct {
	value  any    // of the panic
	stack  string // of the panic
	exited bool
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
			crashed(&Crash{value: v, stack: string(debug.Stack())})
		} else {
			crashed(&Crash{exited: true})
		}
	}()
	f()
	returned = true
}

// Panicked reports whether c is a panic, rather than an exit.
func (c *Crash) Panicked() bool { return !c.exited }

// Error implements error. It returns the value of the panic and its stack.
func (c *Crash) Error() string { return fmt.Sprintf("%v\n%s", c.value, c.stack) }

// DescribePanic implements panicvalue.Describer. It returns a description of the panic without data
// of requests, and its stack.
func (c *Crash) DescribePanic() string { return panicvalue.Text(c.value) + "\n" + c.stack }

// Repeat repeats the crash on the caller's goroutine: it panics with c, or exits. If c is nil, Repeat
// does nothing.
func (c *Crash) Repeat() {
	switch {
	case c == nil:
	case c.exited:
		runtime.Goexit()
	default:
		panic(c)
	}
}
