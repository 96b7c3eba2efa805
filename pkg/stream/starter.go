package stream

import (
	"context"
	"iter"
)

// A Starter is an Engine whose readers need no goroutine while a stream runs. It calls yield with each
// pair, as a loop over the sequence of an Engine does.
//
// A Starter returns true when the sequence has ended. It returns false when other goroutines, one at a
// time, call yield with the pairs that follow. They call resume when they have no more pairs, or when
// they must not wait for the work that is left. resume is called once, must not wait, and has another
// goroutine call rest. rest does the work that is left, and returns what a Starter returns: after false,
// resume is called again.
//
// If yield panics, or exits its goroutine (runtime.Goexit), the sequence ends as when a reader leaves a
// loop in this way, and the panic or exit is repeated: by the Starter or by rest.
type Starter[Req, Item any] func(ctx context.Context, req Req, yield func(Item, error) bool, resume func(rest func() (over bool))) (over bool)

// Starter returns e for readers of Starters. Its goroutine yields all pairs.
func (e Engine[Req, Item]) Starter() Starter[Req, Item] {
	return func(ctx context.Context, req Req, yield func(Item, error) bool, _ func(func() bool)) (over bool) {
		e(ctx, req)(yield)
		return true
	}
}

// Engine returns s for readers that range over a sequence. The goroutine of the loop sleeps while other
// goroutines yield.
func (s Starter[Req, Item]) Engine() Engine[Req, Item] {
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

// Finally is for Stages of Starters. It calls start, which calls the Starter below with its argument
// as resume, and calls end when the sequence has ended: on the goroutine that returns true, panics or
// exits.
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
