package process

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// exitKilled is the status of a process that a second signal ended: the shell's for SIGINT.
const exitKilled = 130

// Signals returns a context that is done after the first SIGINT or SIGTERM, with cause DRAINING: the process finishes
// what runs, within its grace. A second signal ends the process at once.
func Signals(log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	got := make(chan os.Signal, 2)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	go func() { // lives as long as the process
		sig := <-got
		log.Info("draining; a second signal exits at once", "signal", sig.String())
		cancel(streamerr.New(streamerr.Draining, "the process got %s", sig))
		sig = <-got
		log.Warn("second signal, exiting at once", "signal", sig.String())
		os.Exit(exitKilled)
	}()
	return ctx, func() { cancel(nil) }
}
