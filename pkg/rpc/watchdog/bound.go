package watchdog

import (
	"context"

	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/stream"
)

// Bound returns next with timers of its own, in addition to the timers of the named hop. It is for
// one of several engines of a hop. tokens returns the number of tokens of an item; nil counts one
// token for each item.
func Bound[Req, Out any](hop string, t Timers, tokens func(Out) int, next stream.Sequence[Req, Out]) stream.Sequence[Req, Out] {
	return BoundStarter(hop, t, tokens, next.Starter()).Sequence()
}

// BoundStarter is Bound for a Starter. Without timers, it returns next itself.
func BoundStarter[Req, Out any](hop string, t Timers, tokens func(Out) int, next stream.Starter[Req, Out]) stream.Starter[Req, Out] {
	if t == (Timers{}) {
		return next
	}
	if tokens == nil {
		tokens = func(Out) int { return 1 }
	}
	var clock coarse.Clock
	return func(ctx context.Context, req Req, yield func(Out, error) bool, resume func(func() bool)) (over bool) {
		timers := t.Watch(ctx, &clock, hop)
		pass := func(out Out, err error) (more bool) {
			if err != nil {
				yield(out, err)
				return false
			}
			timers.Item(tokens(out))
			more = yield(out, nil)
			timers.Passed()
			return more
		}
		ctx = prefetch.With(prefetch.WithTouched(ctx, timers), prefetch.Func(yield))
		return stream.Finally(timers.End, resume, func(resume func(func() bool)) bool { return next(ctx, req, pass, resume) })
	}
}
