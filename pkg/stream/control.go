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
	whole  *Control        // of the stream that this one is a part of; may be nil
	unlink func() bool     // from the parent; nil if the stream is detached
	grace  time.Duration

	cause   atomic.Pointer[error]   // nil while the stream is live
	state   atomic.Uint32           // a State; written with mu
	killing atomic.Pointer[killing] // nil until it is needed

	mu       sync.Mutex    // guards the following fields; not held while hooks run
	stopping chan struct{} // closed from Stopped on; nil until it is needed
	timer    *time.Timer   // kills after the grace; nil before Stop
	until    time.Time     // when timer kills; zero before Stop
	onStop   func(cause error)
	hooks    []*hook
	onBreak  []*func(err error)
	broken   bool
	idle     bool // the stream waits for its caller, and for nothing else
	onIdle   func(idle bool)
}

// A hook is called when the stream reaches a state.
type hook struct {
	at State
	f  func()
}

// at has f called once the stream has reached a state: by the goroutine that ends the stream, or at
// once if that has happened. undo cancels the call, and reports whether it did so before f was called.
func (c *Control) at(state State, f func()) (undo func() bool) {
	c.mu.Lock()
	if c.State() >= state {
		c.mu.Unlock()
		c.run(f)
		return func() bool { return false }
	}
	h := &hook{state, f}
	c.hooks = append(c.hooks, h)
	c.mu.Unlock()
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.hooks, h)
		if i < 0 {
			return false
		}
		c.hooks = slices.Delete(c.hooks, i, i+1)
		return true
	}
}

// due removes and returns the hooks of the state that the stream has reached, in the order in which
// the stream has reached their states. mu is held.
func (c *Control) due() (due []*hook) {
	for at := Stopped; at <= c.State(); at++ {
		for _, h := range c.hooks {
			if h.at == at {
				due = append(due, h)
			}
		}
	}
	c.hooks = slices.DeleteFunc(c.hooks, func(h *hook) bool { return h.at <= c.State() })
	return due
}

// WithControl returns a context for a stream, and its Control. When parent's stream is stopped, or
// parent is done, the new stream is stopped with that cause, within what is left of the parent's
// grace: the new context outlives parent, so that the engine can still yield the cause. It is canceled
// when the grace after Stop has passed, or by Kill. It has parent's values.
//
// The caller must call Release when the stream has ended.
func WithControl(parent context.Context, grace time.Duration) (context.Context, *Control) {
	ctx, c := Detached(parent, grace)
	whole := c.whole
	if whole == nil && parent.Done() == nil {
		return ctx, c
	}
	c.unlink = AtStop(parent, func(cause error) {
		if whole == nil || whole.Cause() == nil {
			c.Stop(cause)
			return
		}
		c.StopWithin(cause, whole.Grace())
	})
	return ctx, c
}

// Detached is WithControl for a stream that continues when parent is done.
func Detached(parent context.Context, grace time.Duration) (context.Context, *Control) {
	c := &Control{parent: context.WithoutCancel(parent), whole: ControlOf(parent), grace: grace}
	return controlContext{c}, c
}

// Stop asks the engine to finish the current item and to end the sequence. cause must not be nil. The
// functions of AtStop have run when Stop returns, unless another goroutine stops the stream as well.
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
	if c.unlink != nil {
		c.unlink()
	}
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

// OnBreak registers f of the code that starts the stream or ranges over it: Break calls f with the
// failure.
func (c *Control) OnBreak(f func(err error)) (undo func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := &f
	c.onBreak = append(c.onBreak, at)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.onBreak = slices.DeleteFunc(c.onBreak, func(other *func(error)) bool { return other == at })
	}
}

// Break is the last resort for a bug, when no Reader can be ended in order: a Reader has panicked in End,
// or an engine has panicked after it has passed its Reader on. Break kills the stream and ends those of
// OnBreak, on a goroutine of its own, because its caller may be anywhere, even within an Item or a stop.
// So their ending may come twice, and at any time. If there is none, the stream that this one is a part
// of breaks, and if there is no such stream, Break panics.
func (c *Control) Break(err error) {
	if c == nil {
		panic(err)
	}
	c.mu.Lock()
	ends, before := slices.Clone(c.onBreak), c.broken
	c.broken = c.broken || len(ends) > 0
	c.mu.Unlock()
	switch {
	case before:
	case len(ends) == 0:
		c.whole.Break(err)
	default:
		go func() {
			c.Kill(err)
			for _, end := range slices.Backward(ends) {
				(*end)(err)
			}
		}()
	}
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
	for _, h := range c.reach(to, cause, grace) {
		c.run(h.f)
	}
}

// run calls a hook. A panic breaks the stream, and the next hooks run.
func (c *Control) run(f func()) {
	defer func() {
		if v := recover(); v != nil {
			c.Break(failureOf(v))
		}
	}()
	f()
}

// reach brings the stream into a state, if it has not reached it before, and returns the hooks that are
// due.
func (c *Control) reach(to State, cause error, grace time.Duration) (due []*hook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to <= c.State() {
		return nil
	}
	if c.State() == Live {
		if c.onStop != nil {
			c.onStop(cause)
		}
		c.cause.Store(&cause)
		if c.stopping != nil {
			close(c.stopping)
		}
	}
	c.state.Store(uint32(to))
	if to == Stopped {
		c.until = time.Now().Add(grace)
		c.timer = time.AfterFunc(grace, func() { c.Kill(cause) })
		return c.due()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	if k := c.killing.Load(); k != nil {
		k.cancel(c.Cause())
	}
	return c.due()
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
func Stopping(ctx context.Context) <-chan struct{} {
	c := ControlOf(ctx)
	if c == nil {
		return ctx.Done()
	}
	if c.alone(ctx) {
		return c.stoppingChannel()
	}
	merged := make(chan struct{}) // closed when the stream is released, at the latest
	AtStop(ctx, func(error) { close(merged) })
	return merged
}

// stoppingChannel returns a channel that is closed from Stopped on.
func (c *Control) stoppingChannel() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping == nil {
		c.stopping = make(chan struct{})
		if c.State() != Live {
			close(c.stopping)
		}
	}
	return c.stopping
}

// Cause returns why ctx's stream was stopped or killed, or nil while it is live. It is the first
// cause, even if ctx was wrapped with the standard library's WithCancel or WithTimeout and those
// fired later.
func Cause(ctx context.Context) error {
	if cause := ControlOf(ctx).Cause(); cause != nil {
		return cause
	}
	return context.Cause(ctx)
}

// AtStop has f called with the cause once ctx's stream is asked to stop, or ctx is done: by the
// goroutine that stops the stream, or at once by the caller if that has happened. So a stop goes down
// all hops of a process on one goroutine. f must not block, and must not pass an item or an ending to a
// reader: it sends a message, sets a field, or stops other streams. The caller holds no lock that f
// takes. undo cancels the call, and reports whether it did so before f was called; it does not wait for
// a running f.
func AtStop(ctx context.Context, f func(cause error)) (undo func() bool) {
	return at(ctx, Stopped, func() { f(Cause(ctx)) })
}

// AtKill is AtStop for the second step: f is called once ctx is done.
func AtKill(ctx context.Context, f func()) (undo func() bool) { return at(ctx, Killed, f) }

// AfterStop is AtStop for a function that may block, or may call a reader: f runs on a goroutine of its
// own.
func AfterStop(ctx context.Context, f func(cause error)) (undo func() bool) {
	return AtStop(ctx, func(cause error) { go f(cause) })
}

// AfterKill is AfterStop for the second step.
func AfterKill(ctx context.Context, f func()) (undo func() bool) {
	return AtKill(ctx, func() { go f() })
}
