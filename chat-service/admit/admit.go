// Package admit queues streams until a worker has room for them, and admits them in a fair order:
// the most urgent tier first, within a tier the tenant with the least service for its weight, and
// within a tenant the oldest stream.
//
// A worker has a queue of its own, but knows neither tenants nor the load of other workers: a
// stream in a worker's queue waits behind all earlier streams, and stays there even if another
// worker becomes idle. The queue of this package is bounded in streams and in prompt tokens. When
// there is room, a waiting stream goes to the worker that the policy chooses. A stream that is
// stopped leaves the queue immediately.
//
// The order follows virtual token counters (Sheng et al., Fairness in Serving Large Language
// Models, 2024): tokens are charged when they are served, so the length of an answer need not be
// known in advance.
//
// While no worker is healthy there is no room, and streams wait: streams in the queue, new streams,
// and streams that were admitted but reached no worker, which return to their place in the queue a
// few times. They wait for Options.Outage, counted from when the last worker became unhealthy. Then
// they end with UNAVAILABLE, and new streams end with UNAVAILABLE at once until a worker is healthy
// again. A stream that no healthy worker can serve ends at once and blocks no other stream.
//
// Deliberately absent: preemption of a running stream.
package admit

import (
	"context"
	"sync"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

// An Engine answers token ids.
type Engine = stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// Options configure a Queue.
type Options struct {
	// MaxStreams is the maximum number of waiting streams; further streams end with OVERLOADED.
	MaxStreams int
	// MaxTokens is the maximum number of prompt tokens of all waiting streams together.
	MaxTokens int
	// Room returns the maximum number of concurrent streams (negative means no limit), and whether
	// any worker is healthy. It must not block.
	Room func() (places int, healthy bool)
	// Outage is the maximum time that streams wait while no worker is healthy.
	Outage time.Duration
	// Admitted, if set, is called with the waiting time of each admitted stream. It must not block.
	Admitted func(waited time.Duration)
}

// lookEvery is how often a Queue checks for room that appears without its doing: a worker joined or
// became healthy, or another chat-service has fewer streams.
const lookEvery = 250 * time.Millisecond

// A Queue holds the waiting streams of one model.
type Queue struct {
	opts     Options
	turnover stream.Turnover

	mu      sync.Mutex         // guards the following fields
	tenants map[string]*tenant // tenants with a stream, and some without
	running int
	waiting int
	tokens  int       // of the waiting prompts
	down    time.Time // when the last worker became unhealthy; zero while a worker is healthy
}

// New returns an empty queue.
func New(opts Options) *Queue {
	return &Queue{opts: opts, tenants: make(map[string]*tenant)}
}

// Run checks for room and for the end of an outage until ctx is done.
func (q *Queue) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			q.look()
		case <-ctx.Done():
			return
		}
	}
}

func (q *Queue) look() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.hasRoom(now) // starts the clock of an outage even if the queue is empty
	q.dispatch(now)
	q.expire(now)
	q.forget()
}

// Load returns the numbers of running and waiting streams.
func (q *Queue) Load() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running, q.waiting
}

// Stage returns an engine that starts next when there is room. A stream that waits keeps the goroutine
// that has started it.
func (q *Queue) Stage(next Engine) Engine {
	served := func(out *workerv1.GenerateResponse) int { return len(out.GetTokens().GetIds()) }
	return func(ctx context.Context, req *workerv1.TokenRequest, to stream.Reader[*workerv1.GenerateResponse]) {
		admit(ctx, q, req.GetClaim(), len(req.GetPrompt()), served, to, func(to stream.Reader[*workerv1.GenerateResponse]) { next(ctx, req, to) })
	}
}
