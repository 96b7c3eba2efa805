package process

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/whence-dev/whence/pkg/drain"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// StatusInterrupted is the exit status of a process that a signal cut short: the shell's for SIGINT.
const StatusInterrupted = 130

// hurriedExit bounds how long a process runs after the second signal. By then its streams have ended; the process
// still flushes metrics and traces, which a collector may not accept.
const hurriedExit = time.Second

// Signals returns a context that ends with the first SIGINT or SIGTERM, with cause DRAINING: the process finishes its
// streams within its grace. The context carries the order to end (package drain). A second signal ends all streams at
// once, and then the process; a third ends the process immediately.
func Signals(log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, order := drain.New(context.Background())
	got := make(chan os.Signal, 3)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	go func() { // lives as long as the process
		sig := <-got
		log.Info("draining: the process takes no new streams", "signal", sig.String())
		order.Begin(streamerr.New(streamerr.Draining, "the process got %s", sig))
		sig = <-got
		log.Warn("second signal: all streams end now", "signal", sig.String())
		order.Hurry()
		select {
		case <-got:
		case <-time.After(hurriedExit):
		}
		log.Warn("exiting before everything has stopped", "status", StatusInterrupted)
		os.Exit(StatusInterrupted)
	}()
	return ctx, func() { order.Begin(nil) }
}

// Hurried reports whether the process got a second signal. ctx is the context of Signals.
func Hurried(ctx context.Context) bool {
	select {
	case <-drain.Hurried(ctx):
		return true
	default:
		return false
	}
}
