package stream_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/whence-dev/whence/pkg/stream"
)

// steps is a Starter that yields one number per goroutine, and resumes its reader after each.
func steps(_ context.Context, n int, yield func(int, error) bool, resume func(rest func() bool)) (over bool) {
	var next func(i int) bool
	next = func(i int) bool {
		if i == n {
			return true
		}
		go func() {
			if !yield(i, nil) {
				i = n - 1
			}
			resume(func() bool { return next(i + 1) })
		}()
		return false
	}
	return next(0)
}

func TestStarterIsAnEngine(t *testing.T) {
	engine := stream.Starter[int, int](steps).Sequence()
	for n := range 4 {
		var got []int
		for i, err := range engine(t.Context(), n) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, i)
		}
		if want := []int{0, 1, 2}[:n]; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	for range engine(t.Context(), 3) {
		break
	}
}

func TestEngineIsAStarter(t *testing.T) {
	engine := stream.Starter[int, int](steps).Sequence()
	var got []int
	over := engine.Starter()(t.Context(), 3, func(i int, _ error) bool { got = append(got, i); return i < 1 }, func(func() bool) { t.Error("resumed") })
	if !over || !slices.Equal(got, []int{0, 1}) {
		t.Error(over, got)
	}
}

// TestPanicOrExitOfRestReachesTheLoop: the goroutine that ranges over the sequence repeats it.
func TestPanicOrExitOfRestReachesTheLoop(t *testing.T) {
	for name, rest := range map[string]func() bool{"panic": func() bool { panic("oops") }, "exit": func() bool { runtime.Goexit(); return true }} {
		engine := stream.Starter[int, int](func(_ context.Context, _ int, _ func(int, error) bool, resume func(func() bool)) bool {
			go resume(rest)
			return false
		}).Sequence()
		var reading sync.WaitGroup
		reading.Go(func() {
			defer func() {
				if v := recover(); (v != nil) != (name == "panic") || v != nil && fmt.Sprint(v) != "oops" {
					t.Errorf("%s: %v", name, v)
				}
			}()
			for range engine(t.Context(), 1) {
			}
			t.Errorf("%s: the loop continues", name)
		})
		reading.Wait()
	}
}

// TestFinallyCallsEndOnceAfterTheSequence: whatever ends the sequence, end is not called earlier.
func TestFinallyCallsEndOnceAfterTheSequence(t *testing.T) {
	for n := range 3 {
		ended, got := 0, 0
		engine := stream.Starter[int, int](func(ctx context.Context, n int, yield func(int, error) bool, resume func(func() bool)) bool {
			return stream.Finally(func() { ended++ }, resume, func(resume func(func() bool)) bool { return steps(ctx, n, yield, resume) })
		}).Sequence()
		for range engine(t.Context(), n) {
			if got++; ended != 0 {
				t.Errorf("ended before item %d of %d", got, n)
			}
		}
		if ended != 1 || got != n {
			t.Errorf("%d items: ended %d times after %d", n, ended, got)
		}
	}
	for name, f := range map[string]func() bool{"panic": func() bool { panic("oops") }, "exit": func() bool { runtime.Goexit(); return true }} {
		ended := 0
		var running sync.WaitGroup
		running.Go(func() {
			defer func() { _ = recover() }()
			stream.Finally(func() { ended++ }, nil, func(func(func() bool)) bool { return f() })
		})
		running.Wait()
		if ended != 1 {
			t.Errorf("%s: ended %d times", name, ended)
		}
	}
}
