package stream

import (
	"context"
	"iter"
	"runtime"
)

// A Sequence is an engine written as a loop: it answers one request with a sequence of items.
//
// Nothing happens until the sequence is ranged over, once, by one goroutine. Leaving the loop (at its
// end, or by break, return or panic) releases everything that the Sequence holds. A non-nil error comes
// with the last pair, whose item is the zero value. In the first pair, an error means that the stream
// never started. A Sequence watches Stopping(ctx): once that channel closes, it finishes the current item
// and ends with Cause(ctx), within the Control's grace. When ctx itself is done, it ends at once.
type Sequence[Req, Item any] func(ctx context.Context, req Req) iter.Seq2[Item, error]

// Push returns the Engine that ranges over a Sequence and passes its items, on the goroutine that starts
// the stream.
func Push[Req, Item any](s Sequence[Req, Item]) Engine[Req, Item] {
	return func(ctx context.Context, req Req, to Reader[Item]) {
		var e Entry[Item]
		e.Init(ctx, to)
		e.Run(func() error {
			for item, err := range s(ctx, req) {
				if err != nil {
					return err
				}
				if !e.Item(nil, item) {
					return Cause(ctx)
				}
			}
			return nil
		})
	}
}

// Range starts a stream for a loop, and yields its items; a non-nil error is the last pair. Leaving the
// loop, in whatever way, waits until the stream has ended. The loop's body may run on another goroutine
// than the loop, which then sleeps: a panic or an exit of the body is repeated on the loop's goroutine.
// The method value is a Sequence.
func (e Engine[Req, Item]) Range(ctx context.Context, req Req) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		r := &ranger[Item]{yield: yield, ended: make(chan error, 1)}
		if ctl := ControlOf(ctx); ctl != nil {
			defer ctl.OnBreak(r.broke)()
		}
		Guard(func() { e(WithBlocking(ctx), req, r) }, func(failure *Failure) { r.broke(failure) })
		err := <-r.ended
		failure := FailureOf(err)
		switch {
		case failure == nil:
		case failure.Value != nil:
			panic(failure)
		default:
			runtime.Goexit()
		}
		if err != nil && !r.left {
			var none Item
			yield(none, err)
		}
	}
}

// A ranger is the Reader of Range.
type ranger[Item any] struct {
	yield func(Item, error) bool
	left  bool // the loop was left, or its body did not return
	ended chan error
}

// Item implements Reader.
func (r *ranger[Item]) Item(_ *Loop, item Item) (more bool) {
	r.left = true // stays true if the body does not return
	r.left = !r.yield(item, nil)
	return !r.left
}

// End implements Reader.
func (r *ranger[Item]) End(err error) { r.broke(err) }

// broke ends the loop, unless it was ended before.
func (r *ranger[Item]) broke(err error) {
	select {
	case r.ended <- err:
	default:
	}
}
