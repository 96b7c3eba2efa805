package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/whence-dev/whence/internal/client"
)

// errInterrupted is the error of an answer that a signal cut short before it had an ending.
var errInterrupted = errors.New("interrupted")

// stopTimeout bounds the retries of a stop, so that an interrupt ends the command although the
// service is away.
const stopTimeout = 5 * time.Second

// notifySignals delivers the signals that interrupt an answer, until stop is called. Outside of
// these calls a signal ends the process.
func notifySignals() (signals <-chan os.Signal, stop func()) {
	got := make(chan os.Signal, 2)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	return got, func() { signal.Stop(got) }
}

// An interruptWatch stops a stream when a signal arrives, and leaves the stream at a second signal.
type interruptWatch struct {
	leave   func()               // ends the reading, and the request that makes the stream
	stop    func(*client.Stream) // stops the stream, or leaves a stream that cannot be stopped
	cancel  context.CancelFunc   // ends the watch and the stop
	ignore  func()               // ends the delivery of signals
	running sync.WaitGroup

	mu     sync.Mutex
	fired  bool           // a signal has arrived
	stream *client.Stream // nil until the stream exists
}

// watchInterrupts starts a watch. The caller ends the watch.
func (c *chat) watchInterrupts(ctx context.Context, leave func()) *interruptWatch {
	signals, ignore := c.signals()
	w := &interruptWatch{leave: leave, ignore: ignore}
	ctx, w.cancel = context.WithCancel(ctx)
	w.stop = func(s *client.Stream) {
		ctx, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			leave()
		}
	}
	w.running.Go(func() { w.await(ctx, signals) })
	return w
}

// await waits for two signals at most.
func (w *interruptWatch) await(ctx context.Context, signals <-chan os.Signal) {
	select {
	case <-signals:
	case <-ctx.Done():
		return
	}
	w.mu.Lock()
	w.fired = true
	stream := w.stream
	w.mu.Unlock()
	if stream == nil {
		w.leave()
	} else {
		w.running.Go(func() { w.stop(stream) })
	}
	select {
	case <-signals:
		w.leave()
		w.cancel()
	case <-ctx.Done():
	}
}

// attach hands the stream to the watch. If a signal arrived while the stream was being made, attach
// stops the stream before it returns.
func (w *interruptWatch) attach(s *client.Stream) {
	w.mu.Lock()
	w.stream = s
	fired := w.fired
	w.mu.Unlock()
	if fired {
		w.stop(s)
	}
}

// end ends the watch. It reports whether a signal arrived.
func (w *interruptWatch) end() bool {
	w.ignore()
	w.cancel()
	w.running.Wait()
	return w.fired
}
