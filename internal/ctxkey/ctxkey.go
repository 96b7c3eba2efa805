// Package ctxkey finds the keys of values in contexts that other packages do not export. A context of
// our own can hold such a value itself, instead of one context for each value.
package ctxkey

import "context"

// Cancel is the key with which package context looks for the context of its own that cancels a
// context, after a call of Done, or has its cause.
var Cancel = Of(func(ctx context.Context) { _ = context.Cause(ctx) })

// Of returns the key that lookUp looks up in a context, or nil if lookUp looks up none.
func Of(lookUp func(ctx context.Context)) any {
	s := &spy{Context: context.Background()}
	lookUp(s)
	return s.key
}

// A spy is a canceled context that records the key that is looked up in it.
type spy struct {
	context.Context //nolint:containedctx // it is a context

	key any
}

// Err implements context.Context.
func (*spy) Err() error { return context.Canceled }

// Value implements context.Context.
func (s *spy) Value(key any) any {
	s.key = key
	return nil
}
