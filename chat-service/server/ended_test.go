package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/pkg/drain"
)

// Serve waits for a server whose callers keep their connections open, but only until the
// second signal.
func TestSecondSignalEndsTheWaitForCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, order := drain.New(t.Context())
		order.Begin(errors.New("SIGTERM"))
		returned := make(chan time.Duration, 1)
		go func() {
			begun := time.Now()
			if err := ended(ctx, make(chan error)); err != nil {
				t.Error(err)
			}
			returned <- time.Since(begun)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(returned) > 0 {
			t.Error("it did not wait for the server")
		}
		order.Hurry()
		if took := <-returned; took < time.Minute || took > time.Minute+50*time.Millisecond {
			t.Errorf("it waited for %v", took)
		}
	})
}

func TestErrorOfTheServerIsReturned(t *testing.T) {
	broken := errors.New("the listener is broken")
	failed := make(chan error, 1)
	failed <- broken
	if err := ended(context.Background(), failed); !errors.Is(err, broken) {
		t.Error(err)
	}
}
