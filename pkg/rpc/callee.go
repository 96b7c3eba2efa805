package rpc

import (
	"context"
	"sync/atomic"
)

// A Callee learns which peer the calls of a context go to: the last one that Dial called. The zero value has none. It is safe for
// concurrent use.
type Callee struct{ name atomic.Pointer[string] }

// Name returns the peer's name, "" before the first call.
func (c *Callee) Name() string {
	if name := c.name.Load(); name != nil {
		return *name
	}
	return ""
}

type calleeKey struct{}

// WithCallee returns a context whose calls are noted in c.
func WithCallee(ctx context.Context, c *Callee) context.Context {
	return context.WithValue(ctx, calleeKey{}, c)
}

// noteCallee notes that a call of ctx goes to peer.
func noteCallee(ctx context.Context, peer string) {
	if c, ok := ctx.Value(calleeKey{}).(*Callee); ok {
		c.name.Store(&peer)
	}
}
