// Package ctxkey finds the unexported keys under which other packages keep values in contexts. With
// these keys, one context of our own can hold several such values.
package ctxkey

import "context"

// Cancel is the key under which package context finds its own context that cancels a given one: when
// it derives a context from one that has a Done channel, and in context.Cause.
var Cancel = Of(func(ctx context.Context) { _ = context.Cause(ctx) })

// Of returns the last key that lookUp looks up in a context, or nil if lookUp looks up none.
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
