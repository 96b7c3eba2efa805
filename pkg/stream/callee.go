package stream

import (
	"context"
	"sync/atomic"
)

// A Callee records which peer the calls of a context go to: the last peer that was called. The zero
// value has no peer. It is safe for concurrent use.
type Callee struct{ name atomic.Pointer[string] }

// Name returns the peer's name, or "" before the first call.
func (c *Callee) Name() string {
	if name := c.name.Load(); name != nil {
		return *name
	}
	return ""
}

type calleeKey struct{}

// WithCallee returns a context whose calls are recorded in c.
func WithCallee(ctx context.Context, c *Callee) context.Context {
	return context.WithValue(ctx, calleeKey{}, c)
}

// NoteCallee records that a call of ctx goes to peer. Package rpc calls it.
func NoteCallee(ctx context.Context, peer string) {
	if c, ok := ctx.Value(calleeKey{}).(*Callee); ok {
		c.name.Store(&peer)
	}
}
