package admit

import (
	"context"
	"iter"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A ticket is one stream's place, first in the queue and then at a worker. A stream that reaches no
// worker returns to the queue, a few times.
type ticket struct {
	tenant  *tenant
	tier    int
	tokens  int // of the prompt
	arrived time.Time

	// Owned by the queue's lock until ready is closed, then by the stream's goroutine.
	ready     chan struct{} // closed when the stream may run or has expired
	state     state
	returns   int       // number of returns to the queue
	returned  time.Time // time of the first return
	notBefore time.Time // the stream is on hold until then, because it has just reached no worker
}

// A state is the progress of a ticket.
type state uint8

const (
	queued  state = iota
	running       // it has a place at a worker
	expired       // no worker was healthy for too long
)

// admitted returns an engine that runs attempt once the stream has a place. served returns the
// number of answer tokens in an item.
func admitted[Out any](ctx context.Context, q *Queue, claim *llmv1.Claim, tokens int, served func(Out) int, attempt func() iter.Seq2[Out, error]) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		t, err := q.enter(claim, tokens)
		if err == nil {
			defer q.leave(t)
			for again := true; again; {
				if err = q.wait(ctx, t); err != nil {
					break
				}
				again = run(ctx, q, t, served, attempt(), yield)
			}
		}
		if err != nil {
			yield(*new(Out), err)
		}
	}
}

// run passes on the items of attempt. It returns true if the stream reached no worker and is back
// in the queue.
func run[Out any](ctx context.Context, q *Queue, t *ticket, served func(Out) int, attempt iter.Seq2[Out, error], yield func(Out, error) bool) (again bool) {
	begun := false
	for out, err := range attempt {
		if err != nil && !begun && stream.Cause(ctx) == nil && q.restore(t, streamerr.As(err)) {
			return true
		}
		begun = true
		if err == nil {
			if n := served(out); n > 0 {
				q.charge(t, n)
			}
		}
		if !yield(out, err) {
			return false
		}
	}
	return false
}

// lostWorker reports whether an error is the loss of a worker that the stream was sent to.
// UNAVAILABLE without an origin comes from the pool: no worker was called.
func lostWorker(why *streamerr.Error) bool {
	switch why.Reason {
	case streamerr.PeerLost, streamerr.PeerReset, streamerr.Draining:
		return true
	case streamerr.Unavailable:
		return why.Path.Origin() != ""
	default:
		return false
	}
}

// wait returns nil when the stream may run, or the error with which it ends.
func (q *Queue) wait(ctx context.Context, t *ticket) error {
	select {
	case <-t.ready: // usually at once
	default:
		select {
		case <-t.ready:
		case <-stream.Stopping(ctx):
			return stream.Cause(ctx)
		}
	}
	if t.state == expired {
		return q.unavailable()
	}
	return nil
}

// retryAfterOutage is the Retry-After after an outage of Options.Outage. A worker takes seconds to
// start.
const retryAfterOutage = 5 * time.Second

func (q *Queue) unavailable() error {
	err := streamerr.New(streamerr.Unavailable, "no worker of this model has been healthy for %v, the longest time that streams wait", q.opts.Outage)
	err.RetryAfter = retryAfterOutage
	return err
}
