package watchdog

import (
	"context"
	"iter"

	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/pkg/stream"
)

// Bound returns next with timers of its own, beside those of the hop of that name: for one of several
// engines of a hop. tokens counts the tokens of an item; nil counts one for each.
func Bound[Req, Out any](hop string, t Timers, tokens func(Out) int, next stream.Engine[Req, Out]) stream.Engine[Req, Out] {
	if tokens == nil {
		tokens = func(Out) int { return 1 }
	}
	var clock coarse.Clock
	return func(ctx context.Context, req Req) iter.Seq2[Out, error] {
		return func(yield func(Out, error) bool) {
			timers := t.Watch(ctx, &clock, hop)
			defer timers.End()
			for out, err := range next(ctx, req) {
				if err != nil {
					yield(out, err)
					return
				}
				timers.Item(tokens(out))
				more := yield(out, nil)
				timers.Passed()
				if !more {
					return
				}
			}
		}
	}
}
