package stream

import (
	"context"
	"time"

	"github.com/whence-dev/whence/internal/ctxkey"
)

// This file has the contexts of a Control. Most streams need no channel: package context would make
// one for each, besides three objects for the cancellation. So a Control makes the contexts of
// package context on demand.

type controlKey struct{}

// A controlContext is the context of a stream: it has the stream's values and its Control, and is done
// from Killed on.
type controlContext struct{ c *Control }

// Deadline implements context.Context.
func (x controlContext) Deadline() (at time.Time, ok bool) { return time.Time{}, false }

// Done implements context.Context.
func (x controlContext) Done() <-chan struct{} { return x.c.killingContext().Done() }

// Err implements context.Context.
func (x controlContext) Err() error {
	if x.c.State() == Killed {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context.
func (x controlContext) Value(key any) any {
	if key == (controlKey{}) {
		return x.c
	}
	if key == ctxkey.Cancel {
		if x.c.State() == Killed || x.c.killable() != nil {
			return x.c.killingContext().Value(key)
		}
		return x.c // for alone; package context ignores it
	}
	return x.c.parent.Value(key)
}

// killable returns the context of killingContext, or nil if nothing has needed it.
func (c *Control) killable() context.Context {
	c.killer.Lock()
	defer c.killer.Unlock()
	return c.killing
}

// killingContext returns a context with the stream's values that is done from Killed on.
func (c *Control) killingContext() context.Context {
	c.killer.Lock()
	defer c.killer.Unlock()
	if c.killing == nil {
		c.killing, c.kill = context.WithCancelCause(context.WithoutCancel(c.parent))
		if c.State() == Killed {
			c.kill(c.Cause())
		}
	}
	return c.killing
}

// alone reports whether ctx, which is derived from the stream's context, has no timeout or cancel of
// its own, and is not cut off from the stream's by context.WithoutCancel.
func (c *Control) alone(ctx context.Context) bool {
	if ctx.Value(ctxkey.Cancel) == any(c) {
		return true
	}
	killing := c.killable()
	return killing != nil && ctx.Done() == killing.Done()
}

// stoppingContext returns a context with the stream's values that is done from Stopped on.
func (c *Control) stoppingContext() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping == nil {
		c.stopping, c.stop = context.WithCancelCause(context.WithoutCancel(controlContext{c}))
		if cause := c.Cause(); cause != nil {
			c.stop(cause)
		}
	}
	return c.stopping
}

// stopContext returns a context that is done as soon as ctx's stream is asked to stop, or ctx is
// done.
func stopContext(ctx context.Context) context.Context {
	c := ControlOf(ctx)
	if c == nil {
		return ctx
	}
	if c.alone(ctx) {
		return c.stoppingContext()
	}
	// The caller has wrapped the stream's context with a timeout or cancel of its own: both
	// contexts count. The merged context is freed when the stream is released, at the latest.
	merged, cancel := context.WithCancelCause(ctx)
	stopping := c.stoppingContext()
	context.AfterFunc(stopping, func() { cancel(context.Cause(stopping)) })
	return merged
}
