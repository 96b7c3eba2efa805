package socket

import (
	"context"
	"slices"
	"time"

	"github.com/cloudwego/netpoll"

	"github.com/whence-dev/whence/internal/ctxkey"
)

// A connContext is the context of a connection. It is done when the client has closed the
// connection. It makes a context of package context on demand, for its channel and for contexts that
// are derived from it: without one, it needs a tenth of the memory.
type connContext struct {
	context.Context //nolint:containedctx // the values

	s *Socket
}

type key struct{}

// socketOf returns the Socket of a connection's context, or nil.
func socketOf(conn context.Context) *Socket {
	s, _ := conn.Value(key{}).(*Socket)
	return s
}

// Value implements context.Context.
func (c *connContext) Value(k any) any {
	if k == (key{}) {
		return c.s
	}
	if k == ctxkey.Cancel { // if package context finds nothing, it starts a goroutine
		if gone := c.s.goneContext(); gone != nil {
			return gone.Value(k)
		}
	}
	return c.Context.Value(k)
}

// goneContext returns the context that is canceled when the client has closed the connection, or nil
// if nothing has needed it.
func (s *Socket) goneContext() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// Done implements context.Context.
func (c *connContext) Done() <-chan struct{} {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.gone == nil {
		c.s.gone, c.s.cancel = context.WithCancel(c.Context)
		if c.s.left {
			c.s.cancel()
		}
	}
	return c.s.gone.Done()
}

// Err implements context.Context.
func (c *connContext) Err() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.left {
		return context.Canceled
	}
	return nil
}

// AfterLeft calls f on a goroutine of its own once the client has closed its connection. conn is the
// context of the connection, or is derived from it with values. undo is that of context.AfterFunc.
func AfterLeft(conn context.Context, f func()) (undo func() bool) {
	s := socketOf(conn)
	if s == nil {
		return context.AfterFunc(conn, f)
	}
	// A context with a cancel or timeout of its own has asked for gone.
	if gone := s.goneContext(); gone != nil && conn.Done() != gone.Done() {
		return context.AfterFunc(conn, f)
	}
	return s.afterLeft(f)
}

// Flooded reports whether the client of a connection was cut off because it sent too much ahead.
func Flooded(conn context.Context) bool {
	s := socketOf(conn)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flooded
}

// AwaitLeft waits until the client has closed its connection, or for d.
func (s *Socket) AwaitLeft(d time.Duration) {
	left := make(chan struct{})
	undo := s.afterLeft(func() { close(left) })
	defer undo()
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-left:
	case <-late.C:
	}
}

func (s *Socket) afterLeft(f func()) (undo func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		go f()
		return func() bool { return false }
	}
	hook := &f
	s.hooks = append(s.hooks, hook)
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		before := len(s.hooks)
		s.hooks = slices.DeleteFunc(s.hooks, func(other *func()) bool { return other == hook })
		return len(s.hooks) < before
	}
}

// disconnected is called once, when the client has closed the connection. It must not block.
func (s *Socket) disconnected(context.Context, netpoll.Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = true
	if s.cancel != nil {
		s.cancel()
	}
	for _, f := range s.hooks {
		go (*f)()
	}
	s.hooks = nil
}
