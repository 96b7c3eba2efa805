package descriptors

import (
	"context"
	"log/slog"
	"time"
)

// recheck is the time between two looks at the descriptors while they are scarce.
const recheck = time.Second

// Watch logs when descriptors run out and when there are enough again, once each, until ctx is done.
// A process needs one Watch.
func Watch(ctx context.Context, log *slog.Logger) { own().watch(ctx, log) }

func (b *budget) watch(ctx context.Context, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.begun:
		}
		began, refused := time.Now(), b.refused.Load()
		first, reserve := b.zone()
		log.Warn("the process is out of file descriptors: new connections are refused until some are closed; raise the limit (ulimit -n) or lower --max-connections",
			"limit", first+reserve, "reserve", reserve)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(recheck):
			}
			if !b.scarce() {
				break
			}
		}
		select {
		case <-b.begun: // it belongs to this episode
		default:
		}
		log.Info("file descriptors are free again", "after", time.Since(began).Round(time.Second), "refused", b.refused.Load()-refused)
	}
}

// scarce reports whether an episode goes on. It ends when twice the reserve is free, so that one
// episode is not logged as many.
func (b *budget) scarce() bool {
	first, reserve := b.zone()
	return b.next() >= first-reserve
}
