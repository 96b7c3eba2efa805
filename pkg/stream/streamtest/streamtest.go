// Package streamtest tests the contract that every stream.Engine must pass, whatever implements it:
// a function, a loop, a batch loop, or a connection to another process.
package streamtest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/stream"
)

// A Subject is an engine and the requests that the contract needs.
type Subject[Req, Item any] struct {
	// Engine is the engine under test; if it is nil, Sequence is.
	Engine   stream.Engine[Req, Item]
	Sequence stream.Sequence[Req, Item]
	// Short returns a request that completes by itself.
	Short func() Req
	// Long returns a request whose stream passes at least two items soon and then continues for
	// many seconds unless it is ended. Long is nil for engines without such requests, such as unary
	// engines.
	Long func() Req
	// Bad returns a request that the engine refuses. Bad is nil if there is no such request.
	Bad func() Req
	// Live returns the number of streams that run in the engine, on the last hop. It may lag, but
	// must reach 0 after all streams have ended.
	Live func() int
}

// errStop is the cause that the tests stop streams with.
var errStop = errors.New("streamtest: stop")

// Run checks the contract. make is called once per test.
func Run[Req, Item any](t *testing.T, make func(t *testing.T) Subject[Req, Item]) {
	t.Helper()
	tests := []struct {
		name string
		run  func(*testing.T, Subject[Req, Item])
	}{
		{"nothing happens until ranged over", lazy[Req, Item]},
		{"completes", completes[Req, Item]},
		{"refuses without an item", refuses[Req, Item]},
		{"a stream stopped before its start never starts", stoppedBefore[Req, Item]},
		{"a reader that leaves", leaves[Req, Item]},
		{"a panic of the reader", panics[Req, Item]},
		{"an exit of the reader", exits[Req, Item]},
		{"break releases", breakReleases[Req, Item]},
		{"panic releases", panicReleases[Req, Item]},
		{"stop ends with its cause", func(t *testing.T, s Subject[Req, Item]) {
			ends(t, s, func(ctl *stream.Control) { ctl.Stop(errStop) })
		}},
		{"kill ends with its cause", func(t *testing.T, s Subject[Req, Item]) {
			ends(t, s, func(ctl *stream.Control) { ctl.Kill(errStop) })
		}},
		{"a stop from another goroutine", stoppedElsewhere[Req, Item]},
		{"a wrapped context does not hide the stop", wrapped[Req, Item]},
		{"a parent that is canceled stops with its cause", parentCanceled[Req, Item]},
		{"streams do not disturb each other", concurrent[Req, Item]},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := make(t)
			if s.Engine == nil {
				s.Engine = stream.Push(s.Sequence)
			}
			test.run(t, s)
			awaitNoLive(t, s)
		})
	}
}

func awaitNoLive[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	t.Helper()
	if s.Live == nil {
		return
	}
	polltest.Eventually(t, "no stream is live", func() bool { return s.Live() == 0 }) // Live may be in another process
}

func control(t *testing.T) (context.Context, *stream.Control) {
	t.Helper()
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	t.Cleanup(ctl.Release)
	ctl.OnBreak(func(error) {}) // an exit of the reader may leave Start as well, after the ending
	return ctx, ctl
}

// read starts a stream, on a goroutine that may be ended by the reader, and returns its ending.
func read[Req, Item any](t *testing.T, s Subject[Req, Item], ctx context.Context, req Req, onItem func(on *stream.Loop, item Item, n int) bool) (items int, err error) { //nolint:revive // t comes first in tests
	t.Helper()
	r := Record(t, onItem)
	var starting sync.WaitGroup
	starting.Go(func() { stream.Start(ctx, s.Engine, req, r) })
	items, err = r.Await()
	starting.Wait() // an engine returns soon after its stream has ended
	return items, err
}

func lazy[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, _ := control(t)
	_ = s.Engine.Range(ctx, s.Short())
	if s.Sequence != nil {
		_ = s.Sequence(ctx, s.Short())
	}
	if s.Live != nil && s.Live() != 0 {
		t.Fatal("a stream is live before its sequence was ranged over")
	}
}

func completes[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, _ := control(t)
	if n, err := read(t, s, ctx, s.Short(), nil); n == 0 || err != nil {
		t.Fatalf("after %d items: %v", n, err)
	}
}

func refuses[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	if s.Bad == nil {
		t.Skip("this engine refuses nothing")
	}
	ctx, _ := control(t)
	if n, err := read(t, s, ctx, s.Bad(), nil); n != 0 || err == nil {
		t.Fatalf("after %d items: %v", n, err)
	}
}

func stoppedBefore[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, ctl := control(t)
	ctl.Stop(errStop)
	if n, err := read(t, s, ctx, s.Short(), nil); n != 0 || !errors.Is(err, errStop) {
		t.Fatalf("after %d items: %v", n, err)
	}
	for _, err := range s.Engine.Range(ctx, s.Short()) {
		if !errors.Is(err, errStop) {
			t.Fatal(err)
		}
	}
}

func leaves[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, _ := control(t)
	n, err := read(t, s, ctx, s.longest()(), func(*stream.Loop, Item, int) bool { return false })
	if n != 1 || err != nil {
		t.Fatalf("after %d items: %v", n, err)
	}
}

// panics: the reader gets its ending, with the panic.
func panics[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, _ := control(t)
	n, err := read(t, s, ctx, s.longest()(), func(*stream.Loop, Item, int) bool { panic(errStop) })
	if failure := stream.FailureOf(err); n != 1 || failure == nil || failure.Value != any(errStop) {
		t.Fatalf("after %d items: %v", n, err)
	}
}

// exits: the reader gets its ending, although it has ended the goroutine that had the item.
func exits[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, _ := control(t)
	n, err := read(t, s, ctx, s.longest()(), func(*stream.Loop, Item, int) bool {
		runtime.Goexit()
		return true
	})
	if failure := stream.FailureOf(err); n != 1 || failure == nil || failure.Value != nil {
		t.Fatalf("after %d items: %v", n, err)
	}
}

func breakReleases[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, _ := control(t)
	for _, err := range s.Engine.Range(ctx, s.longest()()) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
}

func panicReleases[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, _ := control(t)
	defer func() {
		if recover() == nil {
			t.Fatal("the reader's panic was swallowed")
		}
	}()
	for _, err := range s.Engine.Range(ctx, s.longest()()) {
		panic(err)
	}
}

// longest returns Long, or Short if there is no Long.
func (s Subject[Req, Item]) longest() func() Req {
	if s.Long != nil {
		return s.Long
	}
	return s.Short
}

func ends[Req, Item any](t *testing.T, s Subject[Req, Item], end func(*stream.Control)) {
	ctx, ctl := control(t)
	expectStop(t, s, ctx, func() { end(ctl) })
}

// expectStop runs a long stream, calls stop within the second item, and expects the stream to end with
// errStop.
func expectStop[Req, Item any](t *testing.T, s Subject[Req, Item], ctx context.Context, stop func()) { //nolint:revive // t comes first in tests
	t.Helper()
	if s.Long == nil {
		t.Skip("this engine has no long streams")
	}
	n, err := read(t, s, ctx, s.Long(), func(_ *stream.Loop, _ Item, n int) bool {
		if n == 2 {
			stop()
		}
		return true
	})
	if n < 2 || !errors.Is(err, errStop) {
		t.Fatalf("after %d items: %v", n, err)
	}
}

func stoppedElsewhere[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, ctl := control(t)
	expectStop(t, s, ctx, func() { go ctl.Stop(errStop) })
}

func wrapped[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, ctl := control(t)
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	expectStop(t, s, ctx, func() { ctl.Stop(errStop) })
}

func parentCanceled[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	parent, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ctx, ctl := stream.WithControl(parent, time.Second)
	defer ctl.Release()
	expectStop(t, s, ctx, func() { cancel(errStop) })
}

// concurrent runs streams that complete, streams whose readers leave, and streams that are stopped.
func concurrent[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			ctx, ctl := stream.WithControl(t.Context(), time.Second)
			defer ctl.Release()
			req := s.Short
			if i%3 != 0 {
				req = s.longest()
			}
			items := 0
			for _, err := range s.Engine.Range(ctx, req()) {
				switch {
				case err != nil && !errors.Is(err, errStop):
					t.Errorf("stream %d: %v", i, err)
				case err == nil:
					items++
				}
				if i%3 == 1 {
					break
				}
				if i%3 == 2 && items == 2 {
					ctl.Stop(errStop)
				}
			}
			if items == 0 {
				t.Errorf("stream %d: no items", i)
			}
		})
	}
	wg.Wait()
}
