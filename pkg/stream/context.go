package stream

import (
	"context"
	"sync"
	"time"
)

// This file has the contexts of a Control. Most streams need no channel: package context would make
// one for each, besides three objects for the cancellation. So a Control makes the context of package
// context on demand.

type controlKey struct{}

// A controlContext is the context of a stream: it has the stream's values and its Control, and is done
// from Killed on.
type controlContext struct{ c *Control }

// A killing is the context of package context that is done from Killed on.
type killing struct {
	context.Context //nolint:containedctx // it is a context

	cancel context.CancelCauseFunc
}

// Deadline implements context.Context.
func (x controlContext) Deadline() (at time.Time, ok bool) { return time.Time{}, false }

// Done implements context.Context.
func (x controlContext) Done() <-chan struct{} { return x.c.killable().Done() }

// Err implements context.Context.
func (x controlContext) Err() error {
	if x.c.State() == Killed {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context. Package context looks for its own context below one that has a
// channel or that is done, so killable answers from then on.
func (x controlContext) Value(key any) any {
	if key == (controlKey{}) {
		return x.c
	}
	if x.c.killing.Load() != nil || x.c.State() == Killed {
		return x.c.killable().Value(key)
	}
	return x.c.parent.Value(key)
}

// killable returns a context with the stream's values that is done from Killed on.
func (c *Control) killable() context.Context {
	if k := c.killing.Load(); k != nil {
		return k
	}
	ctx, cancel := context.WithCancelCause(c.parent)
	k := &killing{ctx, cancel}
	if !c.killing.CompareAndSwap(nil, k) {
		cancel(nil)
		return c.killing.Load()
	}
	if c.State() == Killed { // else Kill sees k
		cancel(c.Cause())
	}
	return k
}

// alone reports whether ctx, which is derived from the stream's context, has no timeout or cancel of
// its own, and is not cut off from the stream's by context.WithoutCancel.
func (c *Control) alone(ctx context.Context) bool {
	if _, bare := ctx.(controlContext); bare {
		return true
	}
	return ctx.Done() == c.killable().Done()
}

// at has f called once ctx's stream has reached a state, or ctx is done.
func at(ctx context.Context, state State, f func()) (undo func() bool) {
	c := ControlOf(ctx)
	switch {
	case c == nil:
		return context.AfterFunc(ctx, f)
	case c.alone(ctx):
		return c.at(state, f)
	}
	// ctx has a timeout or cancel of its own: both contexts count.
	var once sync.Once
	first := func() { once.Do(f) }
	undoOwn := context.AfterFunc(ctx, first)
	if state == Killed { // which ends ctx, too, unless it is cut off
		return undoOwn
	}
	undoStream := c.at(state, first)
	return func() bool {
		own, whole := undoOwn(), undoStream()
		return own && whole
	}
}
