package stream_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/pkg/stream"
)

var errGone = errors.New("client gone")

// paced yields an item per millisecond, and stores in left how its loop was left.
func paced(left *string) stream.Sequence[int, int] {
	return func(ctx context.Context, n int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			*left = "break"
			stopping := stream.Stopping(ctx)
			for i := range n {
				select {
				case <-time.After(time.Millisecond):
				case <-ctx.Done():
					*left = "killed"
					yield(0, stream.Cause(ctx))
					return
				}
				if !yield(i, nil) {
					return
				}
				select {
				case <-stopping:
					*left = "stopped"
					yield(0, stream.Cause(ctx))
					return
				default:
				}
			}
			*left = "done"
		}
	}
}

func double(next stream.Sequence[int, int]) stream.Sequence[int, int] {
	return func(ctx context.Context, n int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for v, err := range next(ctx, n) {
				if !yield(v*2, err) {
					return
				}
			}
		}
	}
}

func TestStopEndsAfterCurrentItemAndFirstCauseWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, leave := context.WithCancelCause(t.Context())
		defer leave(nil)
		ctx, ctl := stream.WithControl(parent, 50*time.Millisecond)
		defer ctl.Release()
		var left string
		var n int
		var last error
		for _, err := range double(paced(&left))(ctx, 100) {
			if err != nil {
				last = err
				break
			}
			if n++; n == 3 {
				leave(errGone)
				synctest.Wait()
			}
		}
		if left != "stopped" || n != 3 || !errors.Is(last, errGone) {
			t.Fatalf("left %q after %d items with %v", left, n, last)
		}
		ctl.Kill(errors.New("late"))
		ctl.Stop(errors.New("later"))
		if ctl.State() != stream.Killed || !errors.Is(context.Cause(ctx), errGone) || !errors.Is(stream.Cause(ctx), errGone) {
			t.Fatal(ctl.State(), context.Cause(ctx))
		}
	})
}

func TestOnStopRunsBeforeOtherObservers(t *testing.T) {
	ctx, ctl := stream.WithControl(t.Context(), time.Minute)
	defer ctl.Release()
	var causes []error
	stopping := stream.Stopping(ctx)
	isStopped := func() bool {
		select {
		case <-stopping:
			return true
		default:
			return false
		}
	}
	ctl.OnStop(func(cause error) {
		if isStopped() || stream.Cause(ctx) != nil {
			t.Error("the context was done before OnStop's function ran")
		}
		causes = append(causes, cause)
	})
	ctl.Stop(errGone)
	ctl.Kill(errors.New("later"))
	if !isStopped() || len(causes) != 1 || causes[0] != errGone { //nolint:errorlint // the same value
		t.Errorf("stopped %t, causes %v", isStopped(), causes)
	}
	ctl.OnStop(func(cause error) { causes = append(causes, cause) })
	if len(causes) != 2 || causes[1] != errGone { //nolint:errorlint // the same value
		t.Errorf("OnStop after the stop: causes %v", causes)
	}
}

func TestReleaseDoesNotCallOnStop(t *testing.T) {
	_, ctl := stream.WithControl(t.Context(), time.Minute)
	ctl.OnStop(func(error) { t.Error("Release called OnStop's function") })
	ctl.Release()
}

func TestGraceEndsInKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ctl := stream.WithControl(t.Context(), 50*time.Millisecond)
		defer ctl.Release()
		ctl.Stop(errGone)
		if ctx.Err() != nil || ctl.State() != stream.Stopped {
			t.Fatal("killed at once")
		}
		begun := time.Now()
		<-ctx.Done()
		if took := time.Since(begun); took != 50*time.Millisecond || !errors.Is(context.Cause(ctx), errGone) {
			t.Fatal(took, context.Cause(ctx))
		}
	})
}

func TestWrappedContextStillStopsAndKeepsTheCause(t *testing.T) {
	for name, wrap := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancel": context.WithCancel,
		"timeout": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, ctl := stream.WithControl(t.Context(), time.Millisecond)
				defer ctl.Release()
				wrapped, cancel := wrap(ctx)
				defer cancel()
				stopping := stream.Stopping(wrapped)
				ctl.Stop(errGone)
				<-stopping
				<-wrapped.Done()
				if !errors.Is(stream.Cause(wrapped), errGone) || !errors.Is(context.Cause(wrapped), errGone) {
					t.Fatal(stream.Cause(wrapped), context.Cause(wrapped))
				}
			})
		})
	}
}

func TestAfterStopRunsWhenWrappedContextIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ctl := stream.WithControl(t.Context(), time.Millisecond)
		defer ctl.Release()
		wrapped, cancel := context.WithCancelCause(ctx)
		stopped := make(chan error, 1)
		stream.AfterStop(wrapped, func(cause error) { stopped <- cause })
		cancel(errGone)
		if got := <-stopped; !errors.Is(got, errGone) || ctl.State() != stream.Live {
			t.Fatal(got, ctl.State())
		}
	})
}

func TestDrainWaitsThenStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set stream.Set
		start := func(id string, ends time.Duration) *stream.Control {
			ctx, ctl := stream.WithControl(t.Context(), time.Second)
			remove, err := set.Add(id, ctl)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer ctl.Release()
				defer remove()
				select {
				case <-time.After(ends):
				case <-stream.Stopping(ctx):
				}
			}()
			return ctl
		}
		start("short", time.Second)
		long := start("long", time.Hour)
		if set.Rename("none", "x") || set.Rename("long", "short") || !set.Rename("long", "longer") {
			t.Error("a stream that is not live is renamed, or to an id that is taken, or one is not")
		}
		if _, err := set.Add("longer", long); !errors.Is(err, stream.ErrDuplicate) {
			t.Fatal(err)
		}
		grace, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		set.Drain(grace, errGone)
		if took := time.Since(begun); took != 5*time.Second || set.Len() != 0 {
			t.Fatal(took, set.Len())
		}
		if _, err := set.Add("new", long); !errors.Is(err, stream.ErrClosed) {
			t.Fatal(err)
		}
	})
}

func TestSetIsBoundedAndStopsByID(t *testing.T) {
	set := stream.Set{Max: 1}
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	remove, err := set.Add("a", ctl)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Add("b", ctl); !errors.Is(err, stream.ErrFull) {
		t.Fatal(err)
	}
	if _, ok := set.Stop("b", errGone); ok {
		t.Fatal("Stop found a stream that does not exist")
	}
	if _, ok := set.Stop("a", errGone); !ok || !errors.Is(stream.Cause(ctx), errGone) {
		t.Fatal(stream.Cause(ctx))
	}
	remove()
	if _, err := set.Add("b", ctl); err != nil {
		t.Fatal(err)
	}
}

func TestSetStopsOnlyStreamsOfGivenOwners(t *testing.T) {
	for owners, want := range map[string]bool{"me": true, "you,me": true, "you": false, "": false, "none at all": true} {
		var set stream.Set
		_, ctl := stream.WithControl(t.Context(), time.Second)
		defer ctl.Release()
		if _, err := set.AddOwned("a", "me", ctl); err != nil {
			t.Fatal(err)
		}
		allowed := strings.Split(owners, ",")
		if owners == "none at all" {
			allowed = nil
		}
		if _, ok := set.Stop("a", errGone, allowed...); ok != want || (ctl.State() == stream.Live) == want {
			t.Errorf("owners %q: stopped %t, want %t; the stream is %v", owners, ok, want, ctl.State())
		}
	}
}

func TestIDs(t *testing.T) {
	if a, b := stream.NewID(), stream.NewID(); a == b || len(a) != len(b) || !stream.ValidID(a) {
		t.Fatal(a, b)
	}
	for _, bad := range []string{"", "a b", "é", "a\n", "a/b", string(make([]byte, 129))} {
		if stream.ValidID(bad) {
			t.Errorf("%q is valid", bad)
		}
	}
}

func source(_ context.Context, n int) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range n {
			if !yield(i, nil) {
				return
			}
		}
	}
}

// BenchmarkFourStages measures the overhead of a pipeline per item.
func BenchmarkFourStages(b *testing.B) {
	e := stream.Sequence[int, int](source)
	for range 4 {
		e = double(e)
	}
	b.ReportAllocs()
	for range e(b.Context(), b.N) {
	}
}

// TestGraceOfAStoppedStreamIsNeverUnknown: a grace of 0 would mean unknown.
func TestGraceOfAStoppedStreamIsNeverUnknown(t *testing.T) {
	_, killed := stream.WithControl(t.Context(), time.Hour)
	defer killed.Release()
	killed.Kill(context.Canceled)
	_, late := stream.WithControl(t.Context(), time.Hour)
	defer late.Release()
	late.StopWithin(context.Canceled, -time.Hour)
	for _, ctl := range []*stream.Control{killed, late} {
		if ctl.Grace() <= 0 {
			t.Errorf("a stream that is %v has a grace of %v", ctl.State(), ctl.Grace())
		}
	}
}

// TestAfterStopAndAfterKill: both call a function once, on a goroutine of its own, also for a
// stream that is already stopped or killed, and not if undo was called before. The same holds for a
// context that wraps the stream's, which the Control does not know.
func TestAfterStopAndAfterKill(t *testing.T) {
	for name, wrap := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"the stream's context": func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"a wrapped context":    context.WithCancel,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				streamCtx, ctl := stream.WithControl(t.Context(), time.Second)
				ctx, cancel := wrap(streamCtx)
				defer cancel()
				var stops, kills, undone atomic.Int64
				undoStop := stream.AfterStop(ctx, func(cause error) {
					if errors.Is(cause, errGone) && ctl.State() != stream.Live { // State takes the Control's lock
						stops.Add(1)
					}
				})
				stream.AfterKill(ctx, func() {
					if ctx.Err() != nil {
						kills.Add(1)
					}
				})
				for _, undo := range []func() bool{stream.AfterStop(ctx, func(error) { undone.Add(1) }), stream.AfterKill(ctx, func() { undone.Add(1) })} {
					if !undo() || undo() {
						t.Error("undo must report true once, then false")
					}
				}
				ctl.Stop(errGone)
				synctest.Wait()
				if stops.Load() != 1 || kills.Load() != 0 || undoStop() {
					t.Errorf("after the stop: %d AfterStop and %d AfterKill functions ran", stops.Load(), kills.Load())
				}
				stream.AfterStop(ctx, func(error) { stops.Add(1) })
				time.Sleep(2 * time.Second) // the grace
				synctest.Wait()
				stream.AfterKill(ctx, func() { kills.Add(1) })
				ctl.Release()
				synctest.Wait()
				if stops.Load() != 2 || kills.Load() != 2 || undone.Load() != 0 {
					t.Errorf("%d AfterStop and %d AfterKill functions ran, and %d after undo", stops.Load(), kills.Load(), undone.Load())
				}
			})
		})
	}
}

// TestContextsThatAreCutOff: a context below context.WithoutCancel has only the ends of its own,
// whether or not the stream's context has been asked for its channel before.
func TestContextsThatAreCutOff(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, ctl := stream.WithControl(t.Context(), time.Second)
			if asked {
				ctx.Done()
			}
			var ends []string
			var mu sync.Mutex
			end := func(name string) {
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, name)
			}
			bare := context.WithoutCancel(ctx)
			timed, cancel := context.WithTimeout(bare, time.Millisecond)
			defer cancel()
			stream.AfterStop(timed, func(error) { end("timed stop") })
			stream.AfterKill(timed, func() { end("timed kill") })
			stream.AfterKill(bare, func() { end("bare kill") })
			time.Sleep(time.Second)
			synctest.Wait()
			slices.Sort(ends)
			if want := []string{"timed kill", "timed stop"}; !slices.Equal(ends, want) {
				t.Errorf("asked %t: %v ended, want %v", asked, ends, want)
			}
			ctl.Kill(errGone)
			synctest.Wait()
			if len(ends) != 2 {
				t.Errorf("asked %t: %v ended", asked, ends)
			}
			ctl.Release()
		})
	}
}

// TestDetachedOutlivesItsParent: the parent's cancel, timeout and Control end nothing in the stream.
func TestDetachedOutlivesItsParent(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			above, root := stream.WithControl(stream.WithID(t.Context(), "id"), time.Second)
			defer root.Release()
			parent, cancel := context.WithTimeoutCause(above, time.Minute, errGone)
			defer cancel()
			ctx, ctl := stream.Detached(parent, time.Second)
			if asked {
				ctx.Done()
			}
			derived, done := context.WithCancel(ctx)
			defer done()
			ended := func(error) { t.Error("the stream has ended") }
			undo := []func() bool{stream.AfterStop(ctx, ended), stream.AfterKill(derived, func() { ended(nil) }), context.AfterFunc(ctx, func() { ended(nil) })}
			root.Kill(errGone)
			time.Sleep(time.Hour)
			synctest.Wait()
			for _, u := range undo {
				u()
			}
			if _, ok := ctx.Deadline(); ok || ctx.Err() != nil || derived.Err() != nil || context.Cause(ctx) != nil || ctl.State() != stream.Live {
				t.Error(ok, ctx.Err(), derived.Err(), context.Cause(ctx), ctl.State())
			}
			if stream.ControlOf(derived) != ctl || stream.ID(derived) != "id" {
				t.Error("the stream has another Control, or not the values of its parent")
			}
			ctl.Kill(errGone)
			synctest.Wait()
			if derived.Err() == nil || !errors.Is(context.Cause(ctx), errGone) {
				t.Error(derived.Err(), context.Cause(ctx))
			}
			ctl.Release()
		})
	}
}

// TestOnStopMayUseTheContext: the function of OnStop derives a context from the stream's, as a log
// handler might.
func TestOnStopMayUseTheContext(t *testing.T) {
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	ctl.OnStop(func(error) {
		_, cancel := context.WithTimeout(ctx, time.Second)
		cancel()
	})
	ctl.Stop(errGone)
	ctl.Kill(errGone)
	if got := context.Cause(ctx); !errors.Is(got, errGone) {
		t.Error(got)
	}
}

// TestStopGoesDownOnOneGoroutine: a stop has reached all parts of a stream when it returns, and each
// part has the rest of the grace.
func TestStopGoesDownOnOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		defer ctl.Release()
		var told []string
		tell := func(ctx context.Context, who string) { // without a lock: all run on this goroutine
			stream.AtStop(ctx, func(cause error) {
				if !errors.Is(cause, errGone) {
					t.Errorf("%s was stopped with %v", who, cause)
				}
				told = append(told, who)
			})
		}
		tell(ctx, "stream")
		attempt, one := stream.WithControl(stream.WithID(ctx, "attempt"), time.Minute)
		defer one.Release()
		tell(attempt, "attempt")
		call, two := stream.WithControl(attempt, time.Millisecond)
		defer two.Release()
		tell(call, "call")
		detached, apart := stream.Detached(ctx, time.Second)
		defer apart.Release()
		tell(detached, "detached")
		ctl.StopWithin(errGone, 100*time.Millisecond)
		if want := []string{"stream", "attempt", "call"}; !slices.Equal(told, want) {
			t.Errorf("when Stop returned, %v had been told, want %v", told, want)
		}
		if one.Grace() != 100*time.Millisecond || two.Grace() != time.Millisecond || apart.State() != stream.Live {
			t.Errorf("the parts have %v and %v, and the detached stream is %v", one.Grace(), two.Grace(), apart.State())
		}
		apart.Kill(errGone)
	})
}

// TestKillRunsTheFunctionsOfBothSteps: those of the stop come first, and a function that is registered
// later is called at once.
func TestKillRunsTheFunctionsOfBothSteps(t *testing.T) {
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	var ran []string
	note := func(what string) func() { return func() { ran = append(ran, what) } }
	stream.AtKill(ctx, note("kill"))
	undone := stream.AtStop(ctx, func(error) { t.Error("called after undo") })
	if !undone() || undone() {
		t.Error("undo must report true once, then false")
	}
	undo := stream.AtStop(ctx, func(error) { note("stop")() })
	ctl.Kill(errGone)
	stream.AtKill(ctx, note("late kill"))
	stream.AtStop(ctx, func(error) { note("late stop")() })
	ctl.Release()
	if want := []string{"stop", "kill", "late kill", "late stop"}; !slices.Equal(ran, want) || undo() {
		t.Errorf("%v ran, want %v", ran, want)
	}
}

// TestPartOfAReleasedStream: a part that is released is forgotten by its stream.
func TestPartOfAReleasedStream(t *testing.T) {
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	part, own := stream.WithControl(ctx, time.Second)
	own.Release()
	ctl.Stop(errGone)
	if cause := stream.Cause(part); !errors.Is(cause, context.Canceled) {
		t.Error(cause)
	}
}

func BenchmarkControl(b *testing.B) {
	parent := context.WithValue(b.Context(), benchKey{}, 1)
	b.ReportAllocs()
	for b.Loop() {
		ctx, ctl := stream.WithControl(parent, time.Second)
		undo := stream.AtStop(stream.WithID(ctx, "id"), func(error) {})
		part, own := stream.WithControl(ctx, time.Second)
		stream.AtStop(part, func(error) {})()
		undo()
		own.Release()
		ctl.Release()
	}
}

type benchKey struct{}
