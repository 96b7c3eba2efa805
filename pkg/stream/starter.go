package stream

import (
	"context"
	"iter"
)

// A Starter is a Sequence whose readers need no goroutine while a stream runs. It calls yield with
// each pair, as a loop over a Sequence does.
//
// If resume is not nil, an item may be valid only until yield returns. That includes the items of
// a Sequence.
//
// A Starter returns true when the sequence has ended. It returns false when other goroutines, one
// at a time, will call yield with the pairs that follow. They call resume when they have no more
// pairs, or when the remaining work may block. resume is called once, must not block, and has
// another goroutine call rest. rest does the remaining work, and returns what a Starter returns:
// after false, resume is called again.
//
// If yield panics, or exits its goroutine (runtime.Goexit), the sequence ends as if a reader had
// left a loop in this way, and the Starter or rest repeats the panic or exit.
type Starter[Req, Item any] func(ctx context.Context, req Req, yield func(Item, error) bool, resume func(rest func() (over bool))) (over bool)

// Starter returns s as a Starter that yields all pairs on its caller's goroutine.
func (s Sequence[Req, Item]) Starter() Starter[Req, Item] {
	return func(ctx context.Context, req Req, yield func(Item, error) bool, _ func(func() bool)) (over bool) {
		s(ctx, req)(yield)
		return true
	}
}

// Sequence returns s as a Sequence. The goroutine that ranges over the sequence sleeps while other
// goroutines yield.
func (s Starter[Req, Item]) Sequence() Sequence[Req, Item] {
	return func(ctx context.Context, req Req) iter.Seq2[Item, error] {
		return func(yield func(Item, error) bool) {
			rests := make(chan func() bool, 1)
			over := s(ctx, req, yield, func(rest func() bool) { rests <- rest })
			for !over {
				over = (<-rests)()
			}
		}
	}
}

// Finally is for Stages of Starters. It calls start, which calls the Starter below with its
// argument as resume. When the sequence has ended, Finally calls end, on the goroutine that returns
// true, panics or exits.
func Finally(end func(), resume func(rest func() (over bool)), start func(resume func(rest func() (over bool))) (over bool)) (over bool) {
	run := func(f func() (over bool)) (over bool) {
		over = true // also if f panics or exits
		defer func() {
			if over {
				end()
			}
		}()
		over = f()
		return over
	}
	return run(func() bool {
		return start(func(rest func() (over bool)) { resume(func() bool { return run(rest) }) })
	})
}
