package e2e

import (
	"context"
	"testing"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
)

// hang stops the worker's process until resume, which may be called more than once, or the end of
// the test.
func (w *whence) hang(t *testing.T) (resume func()) {
	t.Helper()
	worker := w.processes[llmWorker]
	worker.freeze(t)
	resume = func() { worker.thaw(t) }
	polltest.Eventually(t, "the worker does not answer", func() bool { // the signal is asynchronous
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := w.client.Info(ctx, &workerv1.InfoRequest{})
		return err != nil
	})
	return resume
}

func TestHeadersAreSentWhileTheWorkerHangs(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{})
	want := w.answer(t, greedy(short))
	resume := w.hang(t)
	l := w.open(t, greedy(short)) // returns with the headers
	if first, err := l.events.Next(); err != nil || first.Comment == "" {
		t.Errorf("the first event is %+v: %v; want a comment", first, err)
	}
	resume()
	if got := l.completed(t); got != want {
		t.Errorf("the answer is %q, want %q", got, want)
	}
}
