package stream_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/whence-dev/whence/pkg/stream"
)

// count is an engine, written as a loop: it yields the numbers from 1 to last, and ends early when its stream is
// stopped.
func count(ctx context.Context, last int) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		stopping := stream.Stopping(ctx)
		for n := 1; n <= last; n++ {
			select {
			case <-stopping:
				yield(0, stream.Cause(ctx))
				return
			default:
			}
			if !yield(n, nil) {
				return
			}
		}
	}
}

// An engine answers one request with items and an ending. Here the engine is a loop, and so is its
// reader.
func ExampleEngine() {
	engine := stream.Push(count)
	for n, err := range engine.Range(context.Background(), 3) {
		fmt.Println(n, err)
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
}

// A stage makes an engine out of the engine below it. This one takes words, and yields text.
func ExampleStage() {
	spell := func(next stream.Sequence[int, int]) stream.Sequence[[]string, string] {
		return func(ctx context.Context, words []string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for n, err := range next(ctx, len(words)) {
					if err != nil {
						yield("", err)
						return
					}
					if !yield(fmt.Sprint(n, ". ", words[n-1]), nil) {
						return
					}
				}
			}
		}
	}
	var _ stream.Stage[[]string, string, int, int] = spell
	for line, err := range spell(count)(context.Background(), []string{"ready", "steady", "go"}) {
		fmt.Println(line, err)
	}
	// Output:
	// 1. ready <nil>
	// 2. steady <nil>
	// 3. go <nil>
}

// A control stops a stream from outside, with a cause. The stream may end by itself within the
// grace; after the grace its context is canceled.
func ExampleControl() {
	ctx, control := stream.WithControl(context.Background(), 250*time.Millisecond)
	defer control.Release()
	for n, err := range count(ctx, 1000) {
		if err != nil {
			fmt.Println("the stream ended:", err)
			break
		}
		fmt.Println(n)
		if n == 2 {
			control.Stop(errors.New("the user closed the tab"))
		}
	}
	fmt.Println(control.State())
	// Output:
	// 1
	// 2
	// the stream ended: the user closed the tab
	// stopped
}
