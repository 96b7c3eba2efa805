package loop_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/whence-dev/whence/pkg/rpc/loop"
)

func TestFunctionRunsWhenTheCallIsCanceled(t *testing.T) {
	for name, test := range map[string]struct {
		does func(c *loop.Canceler, ctx context.Context, f func())
		want int
	}{
		"after the watch begins": {func(c *loop.Canceler, ctx context.Context, f func()) {
			loop.AfterCancel(ctx, f)
			c.Cancel()
			c.Cancel()
		}, 1},
		"before the watch begins": {func(c *loop.Canceler, ctx context.Context, f func()) { c.Cancel(); loop.AfterCancel(ctx, f) }, 1},
		"after the watch has ended": {func(c *loop.Canceler, ctx context.Context, f func()) {
			undo := loop.AfterCancel(ctx, f)
			if !undo() || undo() {
				t.Error("only the first undo removes the function")
			}
			c.Cancel()
		}, 0},
		"not": {func(_ *loop.Canceler, ctx context.Context, f func()) { loop.AfterCancel(ctx, f) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c loop.Canceler
				calls := 0
				test.does(&c, c.With(context.Background()), func() { calls++ })
				synctest.Wait()
				if calls != test.want {
					t.Errorf("the function ran %d times, not %d", calls, test.want)
				}
			})
		})
	}
	var c loop.Canceler
	for name, base := range map[string]context.Context{"without a Canceler": context.Background(), "derived from a call's": c.With(context.Background())} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(base)
			ran := false
			loop.AfterCancel(ctx, func() { ran = true })
			cancel()
			synctest.Wait()
			if !ran {
				t.Errorf("the function of a context %s did not run", name)
			}
		})
	}
}
