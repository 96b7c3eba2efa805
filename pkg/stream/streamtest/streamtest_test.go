package streamtest_test

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An adder is an engine in each of the four kinds of RPC: it yields the running sums of the numbers
// that it receives.
type adder struct{ live atomic.Int32 }

func (a *adder) sums(ctx context.Context, numbers iter.Seq[int]) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		if cause := stream.Cause(ctx); cause != nil {
			yield(0, cause)
			return
		}
		a.live.Add(1)
		defer a.live.Add(-1)
		stopping := stream.Stopping(ctx)
		sum := 0
		for n := range numbers {
			select {
			case <-stopping:
				yield(0, stream.Cause(ctx))
				return
			default:
			}
			if sum += n; !yield(sum, nil) {
				return
			}
		}
	}
}

// last keeps only the last item: it makes a unary engine of a streaming engine.
func last[Req any](next stream.Sequence[Req, int]) stream.Sequence[Req, int] {
	return func(ctx context.Context, req Req) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			item := 0
			for v, err := range next(ctx, req) {
				if err != nil {
					yield(0, err)
					return
				}
				item = v
			}
			yield(item, nil)
		}
	}
}

// upTo turns a single number into the sequence of the numbers below it.
func upTo(next stream.Sequence[iter.Seq[int], int]) stream.Sequence[int, int] {
	return func(ctx context.Context, n int) iter.Seq2[int, error] {
		return next(ctx, func(yield func(int) bool) {
			for i := range n {
				if i > 1 {
					runtime.Gosched()
				}
				if !yield(i) {
					return
				}
			}
		})
	}
}

const forever = 1 << 30

func TestFourKindsAreOneType(t *testing.T) {
	number := func(n int) func() int { return func() int { return n } }
	numbers := func(n int) func() iter.Seq[int] {
		return func() iter.Seq[int] {
			if n < forever {
				return slices.Values([]int{1, 2, 3})
			}
			return func(yield func(int) bool) {
				for yield(1) {
					runtime.Gosched()
				}
			}
		}
	}
	t.Run("unary", func(t *testing.T) {
		streamtest.Run(t, func(*testing.T) streamtest.Subject[int, int] {
			a := &adder{}
			return streamtest.Subject[int, int]{Sequence: last(upTo(a.sums)), Short: number(3), Live: func() int { return int(a.live.Load()) }}
		})
	})
	t.Run("server streaming", func(t *testing.T) {
		streamtest.Run(t, func(*testing.T) streamtest.Subject[int, int] {
			a := &adder{}
			return streamtest.Subject[int, int]{Sequence: upTo(a.sums), Short: number(3), Long: number(forever), Live: func() int { return int(a.live.Load()) }}
		})
	})
	t.Run("client streaming", func(t *testing.T) {
		streamtest.Run(t, func(*testing.T) streamtest.Subject[iter.Seq[int], int] {
			a := &adder{}
			return streamtest.Subject[iter.Seq[int], int]{Sequence: last(a.sums), Short: numbers(3), Live: func() int { return int(a.live.Load()) }}
		})
	})
	t.Run("bidirectional", func(t *testing.T) {
		streamtest.Run(t, func(*testing.T) streamtest.Subject[iter.Seq[int], int] {
			a := &adder{}
			return streamtest.Subject[iter.Seq[int], int]{Sequence: a.sums, Short: numbers(3), Long: numbers(forever), Live: func() int { return int(a.live.Load()) }}
		})
	})
}
