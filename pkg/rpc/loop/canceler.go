package loop

import (
	"context"
	"sync"
)

// A Canceler tells a connection that the context of a call is canceled. It replaces
// context.AfterFunc, which uses several hundred bytes for the first function of a context. The zero
// value is ready.
type Canceler struct {
	done <-chan struct{} // of With's context

	mu       sync.Mutex // guards the following fields
	canceled bool
	f        func()
}

type cancelerKey struct{}

// With returns the context of a call that c cancels: whoever cancels ctx calls Cancel, too. It is called
// once, before the other methods.
func (c *Canceler) With(ctx context.Context) context.Context {
	c.done = ctx.Done()
	return context.WithValue(ctx, cancelerKey{}, c)
}

// Cancel calls the function of Watch on a goroutine of its own, once.
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

// AfterCancel is context.AfterFunc for the context of a call that was passed to a connection.
func AfterCancel(ctx context.Context, f func()) (undo func() bool) {
	c, ok := ctx.Value(cancelerKey{}).(*Canceler)
	if !ok || ctx.Done() != c.done { // somebody has wrapped it with a timeout or cancel of its own
		return context.AfterFunc(ctx, f)
	}
	return c.watch(f)
}

// watch makes Cancel call f, instead of an earlier function.
func (c *Canceler) watch(f func()) (undo func() bool) {
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
