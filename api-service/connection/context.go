package connection

import (
	"context"
	"slices"
	"time"
)

// A connContext is the context of a connection. It is done when the client has closed the
// connection. It makes a context of package context on demand, for its channel and for contexts that
// are derived from it: without one, it needs a tenth of the memory.
type connContext struct{ conn *Conn }

type key struct{}

// connOf returns the Conn of a connection's context, or nil.
func connOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(key{}).(*Conn)
	return c
}

// Deadline implements context.Context.
func (*connContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Value implements context.Context.
func (x *connContext) Value(k any) any {
	if k == (key{}) {
		return x.conn
	}
	if gone := x.conn.goneContext(); gone != nil { // package context finds it, and so needs no goroutine
		return gone.Value(k)
	}
	return nil
}

// goneContext returns the context that is canceled when the client has closed the connection, or nil
// if nothing has needed it.
func (c *Conn) goneContext() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// Done implements context.Context.
func (x *connContext) Done() <-chan struct{} {
	c := x.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.gone, c.cancel = context.WithCancel(context.Background())
		if c.left {
			c.cancel()
		}
	}
	return c.gone.Done()
}

// Err implements context.Context.
func (x *connContext) Err() error {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	if x.conn.left {
		return context.Canceled
	}
	return nil
}

// AfterLeft calls f on a goroutine of its own once the client has closed its connection. ctx is the
// context of the request, or is derived from it with values. undo is that of context.AfterFunc.
func AfterLeft(ctx context.Context, f func()) (undo func() bool) {
	c := connOf(ctx)
	if c == nil {
		return context.AfterFunc(ctx, f)
	}
	// A context with a cancel or timeout of its own has asked for gone.
	if gone := c.goneContext(); gone != nil && ctx.Done() != gone.Done() {
		return context.AfterFunc(ctx, f)
	}
	return c.afterLeft(f)
}

// Flooded reports whether the client of a request was cut off because it sent too much ahead.
func Flooded(ctx context.Context) bool {
	c := connOf(ctx)
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flooded
}

func (c *Conn) afterLeft(f func()) (undo func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		go f()
		return func() bool { return false }
	}
	hook := &f
	c.hooks = append(c.hooks, hook)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		before := len(c.hooks)
		c.hooks = slices.DeleteFunc(c.hooks, func(other *func()) bool { return other == hook })
		return len(c.hooks) < before
	}
}
