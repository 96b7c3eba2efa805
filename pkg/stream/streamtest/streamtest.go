// Package streamtest tests the contract that every stream.Engine must pass, whatever implements it:
// a function, a batch loop, or a connection to another process.
package streamtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/stream"
)

// A Subject is an engine and the requests that the contract needs.
type Subject[Req, Item any] struct {
	Engine stream.Engine[Req, Item]
	// Short returns a request that completes by itself.
	Short func() Req
	// Long returns a request whose stream yields at least two items soon and then continues for
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
		{"refuses in the first pair", refuses[Req, Item]},
		{"a stream stopped before its start never starts", stoppedBefore[Req, Item]},
		{"break releases", breakReleases[Req, Item]},
		{"panic releases", panicReleases[Req, Item]},
		{"stop ends with its cause", func(t *testing.T, s Subject[Req, Item]) {
			ends(t, s, func(ctl *stream.Control) { ctl.Stop(errStop) })
		}},
		{"kill ends with its cause", func(t *testing.T, s Subject[Req, Item]) {
			ends(t, s, func(ctl *stream.Control) { ctl.Kill(errStop) })
		}},
		{"a wrapped context does not hide the stop", wrapped[Req, Item]},
		{"a parent that is canceled stops with its cause", parentCanceled[Req, Item]},
		{"streams do not disturb each other", concurrent[Req, Item]},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := make(t)
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
	return ctx, ctl
}

func lazy[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, _ := control(t)
	_ = s.Engine(ctx, s.Short())
	if s.Live != nil && s.Live() != 0 {
		t.Fatal("a stream is live before its sequence was ranged over")
	}
}

func completes[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, _ := control(t)
	n := 0
	for _, err := range s.Engine(ctx, s.Short()) {
		if err != nil {
			t.Fatalf("after %d items: %v", n, err)
		}
		n++
	}
	if n == 0 {
		t.Fatal("no items")
	}
}

func refuses[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	if s.Bad == nil {
		t.Skip("this engine refuses nothing")
	}
	ctx, _ := control(t)
	n := 0
	for _, err := range s.Engine(ctx, s.Bad()) {
		if n++; err == nil || n > 1 {
			t.Fatalf("pair %d has error %v", n, err)
		}
	}
	if n != 1 {
		t.Fatalf("%d pairs", n)
	}
}

func stoppedBefore[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, ctl := control(t)
	ctl.Stop(errStop)
	n := 0
	for _, err := range s.Engine(ctx, s.Short()) {
		if n++; !errors.Is(err, errStop) || n > 1 {
			t.Fatalf("pair %d has error %v", n, err)
		}
	}
	if n != 1 {
		t.Fatalf("%d pairs", n)
	}
}

func breakReleases[Req, Item any](t *testing.T, s Subject[Req, Item]) {
	ctx, _ := control(t)
	for _, err := range s.Engine(ctx, s.longest()()) {
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
	for _, err := range s.Engine(ctx, s.longest()()) {
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

// expectStop runs a long stream, calls stop after two items, and expects the stream to end with
// errStop within polltest.Patience.
func expectStop[Req, Item any](t *testing.T, s Subject[Req, Item], ctx context.Context, stop func()) { //nolint:revive // t comes first in tests
	t.Helper()
	if s.Long == nil {
		t.Skip("this engine has no long streams")
	}
	var stopped time.Time
	n, ended := 0, false
	for _, err := range s.Engine(ctx, s.Long()) {
		if ended {
			t.Fatal("got another pair after the error")
		}
		if err != nil {
			if stopped.IsZero() || !errors.Is(err, errStop) {
				t.Fatalf("after %d items: %v", n, err)
			}
			ended = true
			continue
		}
		if n++; n == 2 {
			stopped = time.Now()
			stop()
		}
		if !stopped.IsZero() && time.Since(stopped) > polltest.Patience {
			t.Fatalf("got %d items: the stream continues after the stop", n)
		}
	}
	if !ended {
		t.Fatalf("ended cleanly after %d items", n)
	}
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
			n := 0
			for _, err := range s.Engine(ctx, req()) {
				switch {
				case err != nil && !errors.Is(err, errStop):
					t.Errorf("stream %d: %v", i, err)
				case err == nil:
					n++
				}
				if i%3 == 1 {
					break
				}
				if i%3 == 2 && n == 2 {
					ctl.Stop(errStop)
				}
			}
			if n == 0 {
				t.Errorf("stream %d: no items", i)
			}
		})
	}
	wg.Wait()
}
