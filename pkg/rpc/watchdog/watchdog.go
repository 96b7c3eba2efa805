// Package watchdog bounds how long the parts of a stream may take, without a timer operation or a
// clock reading per item.
package watchdog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Timers bound how long the streams of a hop may take; 0 means no bound. Each timer ends the stream
// with DEADLINE, and names itself and its hop. Inner hops should have shorter timeouts than outer
// hops, so that the hop nearest to the fault reports it. If an item waits for a caller that does
// not read, the stall is the caller's fault, and the stream ends with SLOW_READER.
type Timers struct {
	// Deadline bounds the whole stream.
	Deadline time.Duration
	// FirstToken bounds the time from the request to the first token, including the wait in the
	// queue.
	FirstToken time.Duration
	// Stall bounds the time between two items from below, after the first token. It may fire about
	// 5% late.
	Stall time.Duration
	// Idle bounds the wait for the caller's next message, which only Deadline includes as well.
	Idle time.Duration
}

// Validate returns an error if a timer is negative.
func (t *Timers) Validate() error {
	if t.Deadline < 0 || t.FirstToken < 0 || t.Stall < 0 || t.Idle < 0 {
		return errors.New("--deadline, --first-token-timeout, --stall-timeout and --idle-timeout must not be negative")
	}
	return nil
}

// stallChecks is the number of checks for new items per stall timeout.
const stallChecks = 20

// A Watch has the timers of one stream. Its methods belong to the goroutine that ranges over the
// engine.
type Watch struct {
	// steps counts the calls of Item and Passed. It is odd between Item and Passed, while the
	// caller reads the item.
	steps atomic.Uint64
	begun bool // a token has come since the caller's last message

	name     string  // the hop in the messages
	timers   *Timers // not changed
	ctl      *stream.Control
	onWaited func(time.Duration)
	deadline *time.Timer
	idle     time.Time // when the stream began to wait for its caller

	mu      sync.Mutex // guards the following fields
	next    *time.Timer
	round   int // counts the calls of start; timers of earlier rounds have no effect
	stall   coarse.Timer
	checked bool      // the stall timer is running
	seen    uint64    // the value of steps at the last check
	since   time.Time // when a check found this value first
}

// Watch starts the timers of ctx's stream on the named hop. One clock checks all its streams for
// stalls. The caller must call End, and must not change t before.
func (t *Timers) Watch(ctx context.Context, clock *coarse.Clock, name string) *Watch {
	w := &Watch{name: name, timers: t, ctl: stream.ControlOf(ctx)}
	w.stall.Init(clock, w.checkStall)
	asked, _ := ctx.Value(deadlineKey{}).(time.Duration)
	age, _ := ctx.Value(ageKey{}).(time.Duration)
	if d := shortest(t.Deadline, asked); d > 0 {
		w.deadline = time.AfterFunc(max(0, d-age), func() { w.stop("deadline", "the stream has taken longer than", d) })
	}
	w.awaitFirstToken()
	return w
}

// Touched implements prefetch.Toucher. w may be nil.
func (w *Watch) Touched(to *prefetch.List) {
	if w != nil {
		to.Add(prefetch.Before(w, &w.name))
	}
}

// OnWait registers f, which is called when the stream begins to wait for its caller, and waited,
// which is called afterwards with the length of the wait. A wait has a timer of its own; after it,
// the timers run as for a stream that has just begun.
func (w *Watch) OnWait(f func(), waited func(time.Duration)) {
	w.onWaited = waited
	w.ctl.OnIdle(func(idle bool) {
		w.wait(idle)
		if idle {
			f()
		}
	})
}

func (w *Watch) wait(idle bool) {
	if !idle {
		w.onWaited(time.Since(w.idle))
		w.begun = false
		w.awaitFirstToken()
		return
	}
	w.idle = time.Now()
	d := w.timers.Idle
	w.start(d, func() { w.stop("idle timeout", "the caller sent nothing for", d) })
}

func (w *Watch) awaitFirstToken() {
	d := w.timers.FirstToken
	w.start(d, func() { w.stop("first-token timeout", "there was no token within", d) })
}

// start replaces the running timer: it calls f after d, unless d is 0 or another timer is started
// first.
func (w *Watch) start(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.halt()
	if d <= 0 {
		return
	}
	round := w.round
	w.next = time.AfterFunc(d, func() {
		w.mu.Lock()
		due := w.round == round
		w.mu.Unlock()
		if due {
			f()
		}
	})
}

// halt stops the running timer. The caller holds mu.
func (w *Watch) halt() {
	w.round++
	if w.next != nil {
		w.next.Stop()
		w.next = nil
	}
	if w.checked {
		w.checked = false
		w.stall.Stop()
	}
}

func (w *Watch) stop(timer, what string, d time.Duration) {
	w.ctl.Stop(streamerr.New(streamerr.Deadline, "%s %v (%s of %s)", what, d, timer, w.name))
}

// startStall replaces the running timer with checks for a stall.
func (w *Watch) startStall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.halt()
	if w.timers.Stall <= 0 {
		return
	}
	w.checked, w.seen, w.since = true, w.steps.Load(), time.Now()
	w.stall.Reset(w.timers.Stall / stallChecks)
}

// checkStall stops the stream if no item has come for the stall timeout. The cause names the side
// that is at fault. checkStall runs on the clock's goroutine, which a stop could block.
func (w *Watch) checkStall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.checked {
		return
	}
	now, steps := time.Now(), w.steps.Load()
	if steps != w.seen {
		w.seen, w.since = steps, now
	}
	d := w.timers.Stall
	if left := d - now.Sub(w.since); left > 0 {
		w.stall.Reset(min(left, d/stallChecks))
		return
	}
	w.checked = false
	cause := streamerr.New(streamerr.Deadline, "there was no token for %v (stall timeout of %s)", d, w.name)
	if steps%2 == 1 {
		cause = streamerr.New(streamerr.SlowReader, "the caller has read nothing for %v (stall timeout of %s)", d, w.name)
	}
	go w.ctl.Stop(cause)
}

// Item records that an item with a number of tokens has arrived from below.
func (w *Watch) Item(tokens int) {
	w.steps.Add(1)
	if !w.begun && tokens > 0 {
		w.begun = true
		w.startStall()
	}
}

// Passed records that the item was passed on to the caller.
func (w *Watch) Passed() { w.steps.Add(1) }

// End stops the timers.
func (w *Watch) End() {
	if w.onWaited != nil {
		w.ctl.OnIdle(nil)
	}
	if w.deadline != nil {
		w.deadline.Stop()
	}
	w.start(0, nil)
}

type deadlineKey struct{}

// WithDeadline returns a context whose stream may take at most d, in addition to the limits of its
// hop.
func WithDeadline(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, deadlineKey{}, d)
}

type ageKey struct{}

// WithAge returns a context whose stream has run for age on another instance. Its deadline includes
// that time.
func WithAge(ctx context.Context, age time.Duration) context.Context {
	return context.WithValue(ctx, ageKey{}, age)
}

// shortest returns the smaller of two bounds. 0 means no bound.
func shortest(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}
