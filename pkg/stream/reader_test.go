package stream_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
)

// pushed is count as an engine that uses no loop: it passes the numbers on a goroutine of its own.
func pushed(live func(int)) stream.Engine[int, int] {
	return func(ctx context.Context, n int, to stream.Reader[int]) {
		if n < 0 {
			to.End(errors.New("negative"))
			return
		}
		live(1)
		e := &stream.Entry[int]{}
		e.Init(ctx, to)
		go e.Run(func() error {
			defer live(-1)
			for i := range n {
				if stream.Cause(ctx) != nil || !e.Item(nil, i) {
					return stream.Cause(ctx)
				}
				runtime.Gosched()
			}
			return nil
		})
	}
}

// A pairer is a stage that passes every second item with the one before it, and the last one alone.
func pairer(next stream.Engine[int, int]) stream.Engine[int, string] {
	return func(ctx context.Context, n int, to stream.Reader[string]) {
		next(ctx, n, &pairing{Relay: stream.RelayTo(to)})
	}
}

type pairing struct {
	stream.Relay[string]

	first []int
}

func (p *pairing) Item(on *stream.Loop, i int) bool {
	if p.first = append(p.first, i); len(p.first) < 2 {
		return true
	}
	pair := fmt.Sprint(p.first)
	p.first = p.first[:0]
	return p.Pass(on, pair)
}

func (p *pairing) End(err error) {
	p.Close(err, func(err error) error {
		if err == nil && len(p.first) > 0 {
			p.Pass(nil, fmt.Sprint(p.first))
		}
		return err
	})
}

func TestEnginesPassTheContract(t *testing.T) {
	number := func(n int) func() int { return func() int { return n } }
	t.Run("pushed", func(t *testing.T) {
		streamtest.Run(t, func(*testing.T) streamtest.Subject[int, int] {
			var mu sync.Mutex
			n := 0
			live := func(d int) { mu.Lock(); defer mu.Unlock(); n += d }
			return streamtest.Subject[int, int]{
				Engine: pushed(live), Short: number(3), Long: number(1 << 40), Bad: number(-1),
				Live: func() int { mu.Lock(); defer mu.Unlock(); return n },
			}
		})
	})
	t.Run("a stage", func(t *testing.T) {
		streamtest.Run(t, func(*testing.T) streamtest.Subject[int, string] {
			return streamtest.Subject[int, string]{Engine: pairer(pushed(func(int) {})), Short: number(3), Long: number(1 << 40), Bad: number(-1)}
		})
	})
	t.Run("a loop over an engine", func(t *testing.T) {
		streamtest.Run(t, func(*testing.T) streamtest.Subject[int, string] {
			return streamtest.Subject[int, string]{Sequence: pairer(pushed(func(int) {})).Range, Short: number(3), Long: number(1 << 40), Bad: number(-1)}
		})
	})
}

// TestLastItemOfAnEnd: a stage passes an item in its End, unless its reader has left.
func TestLastItemOfAnEnd(t *testing.T) {
	for stay, want := range map[bool]string{true: "[[0 1] [2]]", false: "[[0 1]]"} {
		var got []string
		r := streamtest.Record(t, func(_ *stream.Loop, pair string, _ int) bool { got = append(got, pair); return stay })
		stream.Start(t.Context(), pairer(pushed(func(int) {})), 3, r)
		if _, err := r.Await(); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%v %v, want %s", got, err, want)
		}
	}
}

// A level is a stage that notes its end.
type level struct {
	stream.Relay[int]

	end func() error
}

func (l *level) Item(on *stream.Loop, i int) bool { return l.Pass(on, i) }

func (l *level) End(err error) {
	l.Close(err, func(err error) error {
		if own := l.end(); own != nil {
			return own
		}
		return err
	})
}

func levels(next stream.Engine[int, int], ends ...func() error) stream.Engine[int, int] {
	for _, end := range ends {
		below := next
		next = func(ctx context.Context, n int, to stream.Reader[int]) {
			below(ctx, n, &level{stream.RelayTo(to), end})
		}
	}
	return next
}

// TestLevelsAreReleasedFromTheBottom: also if a level panics, or decides the ending.
func TestLevelsAreReleasedFromTheBottom(t *testing.T) {
	own := errors.New("own")
	for name, middle := range map[string]func() error{"": func() error { return nil }, "own": func() error { return own }, "panic: oops": func() error { panic("oops") }} {
		var order []string
		note := func(what string, f func() error) func() error {
			return func() error { order = append(order, what); return f() }
		}
		nothing := func() error { return nil }
		r := streamtest.Record[int](t, nil)
		stream.Start(t.Context(), levels(pushed(func(int) {}), note("low", nothing), note("middle", middle), note("high", nothing)), 2, r)
		n, err := r.Await()
		if text := fmt.Sprint(err); n != 2 || text != name && (name != "" || err != nil) || !slices.Equal(order, []string{"low", "middle", "high"}) {
			t.Errorf("%q: %d items, %v, %v", name, n, err, order)
		}
	}
}

// A bare reader panics in End, without Close.
type bare struct{ stream.Relay[int] }

func (b *bare) Item(on *stream.Loop, i int) bool { return b.Pass(on, i) }
func (*bare) End(error)                          { panic("oops") }

// TestBreak: nobody above a reader that panics in End can be reached in order. The stream is killed, and
// what has started it is told, once.
func TestBreak(t *testing.T) {
	cases := map[string]stream.Engine[int, int]{
		"an end": func(ctx context.Context, n int, to stream.Reader[int]) {
			pushed(func(int) {})(ctx, n, &bare{stream.RelayTo(to)})
		},
		"a start":            func(context.Context, int, stream.Reader[int]) { panic("oops") },
		"an exit of a start": func(context.Context, int, stream.Reader[int]) { runtime.Goexit() },
		"a start on the part": func(ctx context.Context, n int, to stream.Reader[int]) {
			part, ctl := stream.WithControl(ctx, time.Second)
			defer ctl.Release()
			stream.Start(part, func(context.Context, int, stream.Reader[int]) { panic("oops") }, n, to)
		},
		"a hook of a stop": func(ctx context.Context, _ int, _ stream.Reader[int]) {
			stream.AtStop(ctx, func(error) { panic("oops") })
			stream.ControlOf(ctx).Stop(errGone)
		},
	}
	for name, engine := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, ctl := stream.WithControl(t.Context(), time.Hour)
				defer ctl.Release()
				told := make(chan error, 10)
				ctl.OnBreak(func(err error) { told <- err })
				ctl.OnBreak(func(error) { t.Error("called after undo") })()
				r := streamtest.Record[int](t, nil)
				go stream.Start(ctx, engine, 2, r)
				synctest.Wait()
				failure := stream.FailureOf(<-told)
				if failure == nil || (failure.Value == nil) != strings.Contains(name, "exit") || ctl.State() != stream.Killed || len(told) > 0 {
					t.Errorf("%+v, %v, and %d more", failure, ctl.State(), len(told))
				}
			})
		})
	}
}

// TestBreakEndsALoop: a loop over a stream that breaks gets the panic.
func TestBreakEndsALoop(t *testing.T) {
	ctx, ctl := stream.WithControl(t.Context(), time.Hour)
	defer ctl.Release()
	engine := stream.Engine[int, int](func(ctx context.Context, n int, to stream.Reader[int]) {
		pushed(func(int) {})(ctx, n, &bare{stream.RelayTo(to)})
	})
	defer func() {
		if failure, ok := recover().(*stream.Failure); !ok || failure.Value != "oops" {
			t.Error(failure)
		}
	}()
	for range engine.Range(ctx, 2) {
	}
	t.Error("the loop continues")
}

// TestRowNeedsNoDeepStack: streams that end at once start one after another.
func TestRowNeedsNoDeepStack(t *testing.T) {
	var row stream.Row
	depth, most, n := 0, 0, 0
	var next func()
	next = func() {
		depth++
		most = max(most, depth)
		if n++; n < 1000 {
			row.Then(next)
		}
		depth--
	}
	row.Then(next)
	if n != 1000 || most != 1 {
		t.Errorf("%d streams, %d deep", n, most)
	}
	func() {
		defer func() { _ = recover() }()
		row.Then(func() { panic("oops") })
	}()
	again := false
	row.Then(func() { again = true })
	if !again {
		t.Error("a panic blocks the Row")
	}
}

// TestRowOfOtherGoroutines: the next stream starts on the goroutine that starts the one before, or later
// on the goroutine of its end.
func TestRowOfOtherGoroutines(t *testing.T) {
	var row stream.Row
	var starting sync.Mutex // held by a start: two at once would fail TryLock
	done := make(chan struct{})
	n := 0
	var next func()
	next = func() {
		if !starting.TryLock() {
			t.Error("two starts at once")
			return
		}
		defer starting.Unlock()
		if n++; n == 1000 {
			close(done)
			return
		}
		go row.Then(next)
		if n%2 == 0 {
			runtime.Gosched()
		}
	}
	row.Then(next)
	<-done
}

// TestLoop: a wait hands the connection over once, and flushes the registered buffers.
func TestLoop(t *testing.T) {
	var handed int
	var f flushes
	l := stream.NewLoop(func() { handed++ })
	if !l.Later(&f) || f != 0 || l.Left() {
		t.Error("Later must keep the data")
	}
	l.Flush()
	if f != 1 || !l.Later(&f) {
		t.Error("Flush must write it")
	}
	l.Wait()
	l.Wait()
	if handed != 1 || f != 2 || !l.Left() || l.Later(&f) {
		t.Errorf("handed over %d times, %d flushes", handed, f)
	}
	l = nil
	l.Wait()
	if l.Later(&f) || !l.Left() {
		t.Error("a nil Loop has no batches")
	}
}

type flushes int

func (f *flushes) Flush() { *f++ }

// TestBlockingIsInherited: by everything that is derived from the stream's context.
func TestBlockingIsInherited(t *testing.T) {
	ctx := stream.WithBlocking(t.Context())
	part, ctl := stream.WithControl(stream.WithID(ctx, "part"), time.Second)
	defer ctl.Release()
	if !stream.Blocks(part) || stream.Blocks(t.Context()) {
		t.Error(stream.Blocks(part), stream.Blocks(t.Context()))
	}
}

// TestLoopOverAnExitedBody: an exit of the body, on another goroutine, exits the goroutine of the loop.
func TestExitOfABodyReachesTheLoop(t *testing.T) {
	var looping sync.WaitGroup
	after := false
	looping.Go(func() {
		for range pushed(func(int) {}).Range(t.Context(), 3) {
			runtime.Goexit()
		}
		after = true
	})
	looping.Wait()
	if after {
		t.Error("the loop continues")
	}
}

func tripled(next stream.Engine[int, int]) stream.Engine[int, int] {
	return func(ctx context.Context, n int, to stream.Reader[int]) { next(ctx, n, &tripling{stream.RelayTo(to)}) }
}

type tripling struct{ stream.Relay[int] }

func (t *tripling) Item(on *stream.Loop, i int) bool { return t.Pass(on, 3*i) }

type nothing struct{}

func (nothing) Item(*stream.Loop, int) bool { return true }
func (nothing) End(error)                   {}

// BenchmarkFourRelays measures the overhead of stages per item, behind an Entry.
func BenchmarkFourRelays(b *testing.B) {
	e := stream.Push(stream.Sequence[int, int](func(_ context.Context, n int) iter.Seq2[int, error] { return source(nil, n) })) //nolint:staticcheck // source ignores it
	for range 4 {
		e = tripled(e)
	}
	b.ReportAllocs()
	stream.Start(b.Context(), e, b.N, stream.Reader[int](nothing{}))
}

// BenchmarkRange measures a loop over an engine, per item.
func BenchmarkRange(b *testing.B) {
	b.ReportAllocs()
	for range pushed(func(int) {}).Range(b.Context(), b.N) {
	}
}
