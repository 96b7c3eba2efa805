package stream_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/pkg/stream"
)

func TestInboxReturnsItemsThenEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		defer ctl.Release()
		b := stream.NewInbox[int](10, 10)
		if b.Put(1, 1) != nil || b.Put(2, 1) != nil {
			t.Fatal("there is room")
		}
		go func() {
			time.Sleep(time.Hour)
			if err := b.Put(3, 1); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour)
			b.Close()
		}()
		for want := 1; want <= 3; want++ {
			if got, err := b.Next(ctx); got != want || err != nil {
				t.Errorf("%d, %v, want %d", got, err, want)
			}
		}
		for range 2 {
			if _, err := b.Next(ctx); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
	})
}

func TestInboxIsBounded(t *testing.T) {
	for name, b := range map[string]*stream.Inbox[int]{"items": stream.NewInbox[int](2, 100), "bytes": stream.NewInbox[int](100, 6)} {
		for i := range 2 {
			if err := b.Put(i, 3); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := b.Put(2, 3); !errors.Is(err, stream.ErrInboxFull) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := b.Next(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.Put(2, 3); err != nil {
			t.Errorf("%s: a read item still takes space: %v", name, err)
		}
	}
}

func TestStopEndsTheWaitForTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		defer ctl.Release()
		b := stream.NewInbox[int](1, 1)
		time.AfterFunc(time.Minute, func() { ctl.Stop(cause) })
		if _, err := b.Next(ctx); !errors.Is(err, cause) {
			t.Error(err)
		}
		if err := b.Put(1, 1); err != nil {
			t.Error(err)
		}
		if _, err := b.Next(ctx); !errors.Is(err, cause) {
			t.Errorf("Next returned an item after the stop: %v", err)
		}
	})
}

// TestDrainStopsIdleStreamsAtOnce: a drain waits for streams that answer, and stops streams that
// wait for their callers, now or later.
func TestDrainStopsIdleStreamsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set stream.Set
		cause := errors.New("draining")
		begin := func(id string) (context.Context, func()) {
			ctx, ctl := stream.WithControl(t.Context(), time.Second)
			remove, err := set.Add(id, ctl)
			if err != nil {
				t.Error(err)
			}
			ctl.OnIdle(func(idle bool) {
				if idle && set.Closed() {
					ctl.Stop(cause)
				}
			})
			return ctx, func() { remove(); ctl.Release() }
		}
		begun := time.Now()
		wait := func(id string, busy, want time.Duration) {
			ctx, end := begin(id)
			defer end()
			time.Sleep(busy)
			_, err := stream.NewInbox[int](1, 1).Next(ctx)
			if took := time.Since(begun); !errors.Is(err, cause) || took != want {
				t.Errorf("%s: %v after %v, want %v", id, err, took, want)
			}
		}
		go wait("idle", 0, time.Second)
		go wait("answers", time.Minute, time.Minute)
		go wait("answers for long", time.Hour, time.Hour)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		set.Drain(ctx, cause)
		if took := time.Since(begun); took != time.Hour {
			t.Errorf("drained after %v", took)
		}
	})
}

// TestCheckOfAnInbox checks that an item is checked before Next returns it, and that the stream does
// not count as idle meanwhile.
func TestCheckOfAnInbox(t *testing.T) {
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	idle := false
	ctl.OnIdle(func(is bool) { idle = is })
	b, refused := stream.NewInbox[int](2, 100), errors.New("refused")
	b.Check = func(context.Context) error {
		if idle {
			t.Error("the stream is idle while an item is checked")
		}
		return refused
	}
	time.AfterFunc(time.Millisecond, func() { _ = b.Put(1, 1) })
	if _, err := b.Next(ctx); !errors.Is(err, refused) {
		t.Error(err)
	}
	b.Check = nil
	if err := b.Put(2, 1); err != nil {
		t.Fatal(err)
	}
	if item, err := b.Next(ctx); item != 2 || err != nil {
		t.Error(item, err)
	}
}

// TestStopBeforeTheEndOfTheItemsWins: a caller that stops a stream half-closes its call right after
// that. A reader that waits sees both at once, and must not take the items as complete.
func TestStopBeforeTheEndOfTheItemsWins(t *testing.T) {
	enough := errors.New("enough")
	for range 100 { // a select chooses
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		b := stream.NewInbox[int](1, 1)
		ctl.OnIdle(func(idle bool) {
			if idle {
				ctl.Stop(enough)
				b.Close()
			}
		})
		if _, err := b.Next(ctx); !errors.Is(err, enough) {
			t.Fatal(err)
		}
		ctl.Release()
	}
}
