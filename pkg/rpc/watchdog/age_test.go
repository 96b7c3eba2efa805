package watchdog_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/pkg/rpc/watchdog"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestDeadlineCountsTheTimeOnAnEarlierInstance: the takeover happens within the stream's time, or
// after it.
func TestDeadlineCountsTheTimeOnAnEarlierInstance(t *testing.T) {
	for age, left := range map[time.Duration]time.Duration{0: 10 * time.Second, 4 * time.Second: 6 * time.Second, time.Minute: 0} {
		synctest.Test(t, func(t *testing.T) {
			ctx, ctl := stream.WithControl(context.Background(), time.Second)
			defer ctl.Release()
			timers := watchdog.Timers{Deadline: 10 * time.Second}
			begun := time.Now()
			w := timers.Watch(watchdog.WithAge(ctx, age), &coarse.Clock{}, "api")
			defer w.End()
			<-stream.Stopping(ctx)
			cause := streamerr.As(stream.Cause(ctx))
			if took := time.Since(begun); took != left || cause.Reason != streamerr.Deadline || !strings.Contains(cause.Message, "10s") {
				t.Errorf("after %v on another instance, the stream ends after %v: %v", age, took, cause)
			}
		})
	}
}
