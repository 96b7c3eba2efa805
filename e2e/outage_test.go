package e2e

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
)

// waiters are requests that wait in chat-service.
type waiters struct {
	whence *whence
	all    sync.WaitGroup
	n      int
	mu     sync.Mutex
	failed []string // the errors of failed requests
}

// queue sends n requests and returns when all of them wait.
func (q *waiters) queue(t *testing.T, n int) {
	t.Helper()
	for range n {
		q.n++
		id := "waiter-" + strconv.Itoa(q.n)
		q.all.Go(func() {
			resp, err := q.whence.send(t, greedy(short, "max_tokens", 5), id)
			if err != nil {
				t.Error(err)
				return
			}
			if got := readAll(t, resp); got.status != http.StatusOK {
				q.mu.Lock()
				defer q.mu.Unlock()
				q.failed = append(q.failed, strconv.Itoa(got.status)+" "+string(got.body))
			}
		})
	}
	q.waits(t, q.n)
}

// waits waits until n requests wait in chat-service.
func (q *waiters) waits(t *testing.T, n int) {
	t.Helper()
	chat := q.whence.processes[chatService]
	polltest.Eventually(t, strconv.Itoa(n)+" streams wait", func() bool {
		return chat.scrape(t).Sum("whence_streams_queued", "hop="+chatService) == float64(n)
	})
}

// answered waits until all requests are answered.
func (q *waiters) answered(t *testing.T) {
	t.Helper()
	q.all.Wait()
	if len(q.failed) > 0 {
		t.Errorf("%d of %d waiting streams failed, the first with %s", len(q.failed), q.n, q.failed[0])
	}
	q.n = 0
}

// TestStreamsWaitForTheOnlyWorker covers a single worker that is briefly away, hung or dead. Queued
// and new streams wait in chat-service, and all are answered when the worker is back.
func TestStreamsWaitForTheOnlyWorker(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{
		all:    measured,
		api:    []string{"--headers-after", "1m"},
		chat:   []string{"--queue-streams", "100", "--queue-outage", "1m"},
		worker: []string{"--max-running", "1", "--max-queued", "8", "--pace", "100"},
	})
	unhealthy := func() {
		polltest.Eventually(t, "the worker is not healthy", func() bool { return w.readiness() == http.StatusServiceUnavailable })
	}
	q := &waiters{whence: w}

	first, err := w.send(t, greedy(long, "stream", true), "first")
	if err != nil {
		t.Fatal(err)
	}
	hung := newLive(first)
	defer hung.close()
	hung.begun(t)
	q.queue(t, 12)
	resume := w.hang(t)
	unhealthy()
	q.queue(t, 2)
	resume()
	hung.close()
	q.answered(t)

	second, err := w.send(t, greedy(long, "stream", true), "second")
	if err != nil {
		t.Fatal(err)
	}
	lost := newLive(second)
	defer lost.close()
	lost.begun(t)
	q.queue(t, 12)
	w.processes[llmWorker].kill(t)
	unhealthy()
	q.waits(t, 12)
	q.queue(t, 2)
	w.restart(t, llmWorker)
	q.answered(t)
}

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
