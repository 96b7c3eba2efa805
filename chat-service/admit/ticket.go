package admit

import (
	"context"
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

// admit calls start with the stream's Reader once the stream has a place. served returns the number of
// answer tokens in an item.
func admit[Out any](ctx context.Context, q *Queue, claim *llmv1.Claim, tokens int, served func(Out) int, to stream.Reader[Out], start func(to stream.Reader[Out])) {
	t, err := q.enter(claim, tokens)
	if err != nil {
		to.End(err)
		return
	}
	a := &admission[Out]{Relay: stream.RelayTo(to), ctx: ctx, queue: q, ticket: t, served: served, start: start}
	a.row.Then(a.attempt)
}

// An admission is the Reader of a stream with a ticket.
type admission[Out any] struct {
	stream.Relay[Out]

	ctx    context.Context //nolint:containedctx // of the stream
	queue  *Queue
	ticket *ticket
	served func(Out) int
	start  func(to stream.Reader[Out])
	row    stream.Row
	begun  bool // the attempt has passed an item
}

// attempt waits for a place, and starts the stream.
func (a *admission[Out]) attempt() {
	if err := a.queue.wait(a.ctx, a.ticket); err != nil {
		a.leave(err)
		return
	}
	a.start(a)
}

// Item implements stream.Reader.
func (a *admission[Out]) Item(on *stream.Loop, out Out) (more bool) {
	a.begun = true
	if n := a.served(out); n > 0 {
		a.queue.charge(a.ticket, n)
	}
	return a.Pass(on, out)
}

// End implements stream.Reader. A stream that reached no worker returns to the queue.
func (a *admission[Out]) End(err error) {
	if err != nil && !a.begun && stream.FailureOf(err) == nil && stream.Cause(a.ctx) == nil && a.queue.restore(a.ticket, streamerr.As(err)) {
		a.row.Then(a.attempt)
		return
	}
	a.leave(err)
}

// leave ends the stream.
func (a *admission[Out]) leave(err error) {
	a.Close(err, func(err error) error {
		a.queue.leave(a.ticket)
		return err
	})
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
