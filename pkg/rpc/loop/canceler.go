package loop

import (
	"context"
	"sync"
)

// A Canceler calls one function when a call is canceled or over. It replaces context.AfterFunc, which
// uses several hundred bytes for the first function of a context. The zero value is ready.
type Canceler struct {
	mu       sync.Mutex // guards the following fields
	canceled bool
	f        func()
}

// A cancelable is the context of a call.
type cancelable struct {
	context.Context //nolint:containedctx // it is a context

	c *Canceler
}

// With attaches c to ctx, for AfterCancel. Code that cancels ctx must also call Cancel.
func (c *Canceler) With(ctx context.Context) context.Context { return &cancelable{ctx, c} }

// Cancel calls the function of After.
func (c *Canceler) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.canceled = true
	c.fire()
}

func (c *Canceler) fire() {
	if c.canceled && c.f != nil {
		go c.f()
		c.f = nil
	}
}

// AfterCancel is context.AfterFunc for the context of a call that was passed to a connection. It
// uses the Canceler if ctx is the result of With itself: a context derived from it may have a timeout
// of its own.
func AfterCancel(ctx context.Context, f func()) (undo func() bool) {
	if call, ok := ctx.(*cancelable); ok {
		return call.c.After(f)
	}
	return context.AfterFunc(ctx, f)
}

// After makes Cancel call f, once and on a goroutine of its own, instead of an earlier function. It
// calls f at once if Cancel was called before. undo is that of context.AfterFunc.
func (c *Canceler) After(f func()) (undo func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.f = f
	c.fire()
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		before := c.f != nil
		c.f = nil
		return before
	}
}
