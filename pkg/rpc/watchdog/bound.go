package watchdog

import (
	"context"

	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/stream"
)

// Bound returns next with timers of its own, in addition to the timers of the named hop. It is for
// one of several engines of a hop. tokens returns the number of tokens of an item; nil counts one
// token for each item. Without timers, Bound returns next itself.
func Bound[Req, Out any](hop string, t Timers, tokens func(Out) int, next stream.Engine[Req, Out]) stream.Engine[Req, Out] {
	if t == (Timers{}) {
		return next
	}
	if tokens == nil {
		tokens = func(Out) int { return 1 }
	}
	var clock coarse.Clock
	return func(ctx context.Context, req Req, to stream.Reader[Out]) {
		b := &boundReader[Out]{Relay: stream.RelayTo(to), timers: t.Watch(ctx, &clock, hop), tokens: tokens}
		next(prefetch.With(prefetch.WithTouched(ctx, b.timers), prefetch.Of(b)), req, b)
	}
}

// A boundReader is the Reader of a stream with timers.
type boundReader[Out any] struct {
	stream.Relay[Out]

	timers *Watch
	tokens func(Out) int
}

// Item implements stream.Reader.
func (b *boundReader[Out]) Item(on *stream.Loop, out Out) (more bool) {
	b.timers.Item(b.tokens(out))
	more = b.Pass(on, out)
	b.timers.Passed()
	return more
}

// End implements stream.Reader.
func (b *boundReader[Out]) End(err error) {
	b.Close(err, func(err error) error {
		b.timers.End()
		return err
	})
}
