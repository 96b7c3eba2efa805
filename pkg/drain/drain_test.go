package drain_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/pkg/drain"
)

var errAsked = errors.New("asked to end")

func TestGraceCountsFromTheFirstStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, order := drain.New(t.Context())
		order.Begin(errAsked)
		if !errors.Is(context.Cause(ctx), errAsked) {
			t.Error(context.Cause(ctx))
		}
		begun := time.Now()
		time.Sleep(2 * time.Second) // the drain of the service before this one took that long
		within, cancel := drain.Within(ctx, 3*time.Second)
		defer cancel()
		<-within.Done()
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("the drain ended %v after the first step", took)
		}
		if got := drain.Goodbye(ctx, time.Second); got != time.Second {
			t.Error(got)
		}
	})
}

func TestSecondStepEndsTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, order := drain.New(t.Context())
		order.Begin(errAsked)
		within, cancel := drain.Within(ctx, time.Hour)
		defer cancel()
		begun := time.Now()
		order.Hurry()
		order.Hurry()
		<-within.Done()
		<-drain.Hurried(ctx)
		if took := time.Since(begun); took != 0 {
			t.Errorf("the drain ended %v after the second step", took)
		}
		if got := drain.Goodbye(ctx, time.Second); got >= time.Second {
			t.Error(got)
		}
	})
}

func TestServiceThatEndsWithoutAnOrderHasItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		within, cancel := drain.Within(t.Context(), time.Second)
		defer cancel()
		<-within.Done()
		if took := time.Since(begun); took != time.Second || drain.Hurried(t.Context()) != nil {
			t.Error(took)
		}
	})
}

func TestServiceDrainsAfterTheServiceBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, order := drain.New(t.Context())
		before := make(chan struct{})
		late := drain.After(ctx, before)
		order.Begin(errAsked)
		synctest.Wait()
		if late.Err() != nil {
			t.Fatal("the service drains at the same time as the service before it")
		}
		close(before)
		<-late.Done()
		if !errors.Is(context.Cause(late), errAsked) || drain.Hurried(late) == nil {
			t.Errorf("cause %v, and an order: %t", context.Cause(late), drain.Hurried(late) != nil)
		}
	})
}

func TestSecondStepWaitsBrieflyForTheServiceBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, order := drain.New(t.Context())
		late := drain.After(ctx, make(chan struct{}))
		order.Begin(errAsked)
		time.Sleep(time.Hour)
		if late.Err() != nil {
			t.Fatal("the service does not wait for the service before it")
		}
		begun := time.Now()
		order.Hurry()
		<-late.Done()
		if took := time.Since(begun); took <= 0 || took >= drain.KillAfter {
			t.Errorf("the service drains %v after the second step", took)
		}
	})
}
