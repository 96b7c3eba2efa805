package stream

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A State says how far a stream has been ended. It only ever advances.
type State uint32

// The states of a stream.
const (
	Live    State = iota // running
	Stopped              // asked to finish the current item, yield the cause, and end
	Killed               // ctx is canceled: nothing more is read or sent
)

// String returns "live", "stopped" or "killed".
func (s State) String() string { return [...]string{"live", "stopped", "killed"}[s] }

// A Control ends a stream from outside, in two steps. The first cause wins, and stays the cause of
// both steps. All methods are safe for concurrent use.
type Control struct {
	parent context.Context // the stream has its values, but does not end with it
	grace  time.Duration

	cause atomic.Pointer[error] // nil while the stream is live
	state atomic.Uint32         // a State; written with mu

	// killing is done from Killed on, with the cause; nil until it is needed. Its mutex is not mu, with
	// which onStop is called.
	killer  sync.Mutex
	killing context.Context
	kill    context.CancelCauseFunc

	mu       sync.Mutex      // guards the following fields
	stopping context.Context // done from Stopped on, with the cause; nil until it is needed
	stop     context.CancelCauseFunc
	timer    *time.Timer // kills after the grace; nil before Stop
	until    time.Time   // when timer kills; zero before Stop
	onStop   func(cause error)
	hooks    []*hook
	idle     bool // the stream waits for its caller, and for nothing else
	onIdle   func(idle bool)
}

// A hook is called on a goroutine of its own when the stream reaches a state.
type hook struct {
	at State
	f  func()
}

// after calls f on a goroutine of its own once the stream has reached a state. It uses a fraction
// of the memory of context.AfterFunc. The returned function cancels the call, and reports whether
// it did so before f was started.
func (c *Control) after(at State, f func()) (undo func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.State() >= at {
		go f()
		return func() bool { return false }
	}
	h := &hook{at, f}
	c.hooks = append(c.hooks, h)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		before := len(c.hooks)
		c.hooks = slices.DeleteFunc(c.hooks, func(other *hook) bool { return other == h })
		return len(c.hooks) < before
	}
}

// fire starts the hooks of the state that the stream has reached. mu is held.
func (c *Control) fire() {
	c.hooks = slices.DeleteFunc(c.hooks, func(h *hook) bool {
		due := h.at <= c.State()
		if due {
			go h.f()
		}
		return due
	})
}

// WithControl returns a context for a stream, and its Control. When parent is done, Stop is called
// with parent's cause: the new context outlives parent by the grace, so that the engine can still
// yield the cause. The new context is canceled when the grace after Stop has passed, or by Kill. It
// has parent's values.
//
// The caller must call Release when the stream has ended.
func WithControl(parent context.Context, grace time.Duration) (context.Context, *Control) {
	ctx, c := Detached(parent, grace)
	if parent.Done() != nil {
		unhook := context.AfterFunc(parent, func() { c.Stop(context.Cause(parent)) })
		c.after(Killed, func() { unhook() })
	}
	return ctx, c
}

// Detached is WithControl for a stream that continues when parent is done.
func Detached(parent context.Context, grace time.Duration) (context.Context, *Control) {
	c := &Control{parent: parent, grace: grace}
	return controlContext{c}, c
}

// Stop asks the engine to finish the current item and to end the sequence. cause must not be nil.
func (c *Control) Stop(cause error) { c.advance(Stopped, cause, c.grace) }

// StopWithin is Stop with a shorter grace, such as the budget that the caller sent. A grace above
// the Control's own has no effect.
func (c *Control) StopWithin(cause error, grace time.Duration) {
	c.advance(Stopped, cause, min(c.grace, grace))
}

// Kill cancels the stream's context now. cause must not be nil. If the stream was stopped before,
// it keeps the cause of the stop.
func (c *Control) Kill(cause error) { c.advance(Killed, cause, 0) }

// Release frees the Control's resources. The stream must have ended. If no cause was set before,
// the cause becomes context.Canceled.
func (c *Control) Release() {
	c.mu.Lock()
	c.onStop = nil
	c.mu.Unlock()
	c.advance(Killed, context.Canceled, 0)
}

// OnStop registers f, which Stop and Kill call with the cause before any other observer can see it.
// If the stream was stopped already, OnStop calls f at once. f must not block, and must not use c.
// A later call replaces f, and Release removes it.
func (c *Control) OnStop(f func(cause error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.State() != Live {
		f(c.Cause())
		return
	}
	c.onStop = f
}

// OnIdle registers f, which the waiting goroutine calls whenever the stream begins or ceases to
// wait for its caller. A later call replaces f.
func (c *Control) OnIdle(f func(idle bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onIdle = f
}

// setIdle records that the stream begins or ceases to wait for its caller. A nil Control ignores
// it.
func (c *Control) setIdle(idle bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.idle = idle
	f := c.onIdle
	c.mu.Unlock()
	if f != nil {
		f(idle)
	}
}

// stopIdle stops the stream if it waits for its caller.
func (c *Control) stopIdle(cause error) {
	c.mu.Lock()
	idle := c.idle
	c.mu.Unlock()
	if idle {
		c.Stop(cause)
	}
}

func (c *Control) advance(to State, cause error, grace time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to <= c.State() {
		return
	}
	if c.State() == Live {
		if c.onStop != nil {
			c.onStop(cause)
		}
		c.cause.Store(&cause)
		if c.stop != nil {
			c.stop(cause)
		}
	}
	c.state.Store(uint32(to))
	if to == Stopped {
		c.until = time.Now().Add(grace)
		c.timer = time.AfterFunc(grace, func() { c.Kill(cause) })
		c.fire()
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.killer.Lock()
	if c.kill != nil {
		c.kill(c.Cause())
	}
	c.killer.Unlock()
	c.fire()
}

// Grace returns how long a stopped stream may still take to end. For a live stream that is the
// whole grace. For a stopped or killed stream it is at least 1 ns, because 0 means that the grace
// is unknown. A nil Control returns 0.
func (c *Control) Grace() time.Duration {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.State() {
	case Live:
		return c.grace
	case Stopped:
		return max(1, time.Until(c.until))
	default:
		return 1
	}
}

// State reports how far the stream has been ended.
func (c *Control) State() State { return State(c.state.Load()) }

// Cause returns why the stream was asked to stop, or nil while it is live. A nil Control has no
// cause.
func (c *Control) Cause() error {
	if c == nil {
		return nil
	}
	if cause := c.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// ControlOf returns the Control of ctx's stream, or nil.
func ControlOf(ctx context.Context) *Control {
	c, _ := ctx.Value(controlKey{}).(*Control)
	return c
}

// Stopping returns a channel that is closed once ctx's stream is asked to stop, or ctx is done.
// Call Stopping once, before the loop that selects on the channel. Without a Control, it returns
// ctx.Done().
func Stopping(ctx context.Context) <-chan struct{} { return stopContext(ctx).Done() }

// Cause returns why ctx's stream was stopped or killed, or nil while it is live. It is the first
// cause, even if ctx was wrapped with the standard library's WithCancel or WithTimeout and those
// fired later.
func Cause(ctx context.Context) error {
	if cause := ControlOf(ctx).Cause(); cause != nil {
		return cause
	}
	return context.Cause(ctx)
}

// AfterStop calls f on a goroutine of its own once ctx's stream is asked to stop, or ctx is done.
// The returned function cancels the call, and reports whether it did so before f was started.
func AfterStop(ctx context.Context, f func(cause error)) (undo func() bool) {
	if c := ControlOf(ctx); c != nil && c.alone(ctx) {
		return c.after(Stopped, func() { f(c.Cause()) })
	}
	stopping := stopContext(ctx)
	return context.AfterFunc(stopping, func() { f(context.Cause(stopping)) })
}

// AfterKill calls f on a goroutine of its own once ctx is done, as context.AfterFunc does, but uses
// less memory for the context of a stream.
func AfterKill(ctx context.Context, f func()) (undo func() bool) {
	if c := ControlOf(ctx); c != nil && c.alone(ctx) {
		return c.after(Killed, f)
	}
	return context.AfterFunc(ctx, f)
}
