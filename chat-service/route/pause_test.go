package route

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// losing returns a worker whose connection is lost after this many tokens.
func losing(name string, at int) *fake {
	f := &fake{name: name}
	f.fault = func(tokens int) error {
		if tokens == at {
			return lostBy(f)
		}
		return nil
	}
	return f
}

// fullOnce returns a worker that refuses its first call with this Retry-After.
func fullOnce(name string, pause time.Duration) *fake {
	f, calls := &fake{name: name}, 0
	f.fault = func(tokens int) error {
		if tokens >= 0 {
			return nil
		}
		if calls++; calls > 1 {
			return nil
		}
		return &streamerr.Error{Reason: streamerr.Overloaded, Path: streamerr.NewPath(name), RetryAfter: pause}
	}
	return f
}

// TestStopEndsAPause checks that a stop ends a stream that pauses for a full worker, before the
// pause is over.
func TestStopEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poolOf(t, Options{Policy: inOrder, Migrations: 3}, losing("w/0", 4), fullOnce("w/1", 10*time.Second))
		ctx, ctl := controlled(t)
		defer ctl.Release()
		time.AfterFunc(time.Second, func() { ctl.Stop(errGone) })
		got := read(ctx, p, ask(9), nil)
		if e := streamerr.As(got.err); e.Reason != streamerr.ClientGone || got.took != time.Second {
			t.Error(got.err, got.took)
		}
	})
}

// TestPauseBehindASlowReaderIsShort checks that a slow reader before a pause does not lengthen the
// pause.
func TestPauseBehindASlowReaderIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := losing("w/0", 1)
		loses := lost.fault
		lost.fault = func(tokens int) error {
			if tokens == 0 {
				time.Sleep(6 * time.Second) // the reader is slow
			}
			return loses(tokens)
		}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 3, MigrateAfter: 5 * time.Second, FirstTokenMove: time.Minute}, lost, fullOnce("w/1", time.Second))
		got := read(t.Context(), p, ask(9), func(tokens int) {
			if tokens == 1 {
				time.Sleep(20 * time.Second)
			}
		})
		if got.err != nil || len(got.tokens) != 9 || got.took > 28*time.Second {
			t.Error(len(got.tokens), got.err, got.took)
		}
	})
}
