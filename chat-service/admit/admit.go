// Package admit holds streams back until a worker has room for them, and admits them in a fair order: the most urgent
// tier first, within a tier the tenant with the least service for its weight, and within a tenant the oldest stream.
//
// A worker has its own queue, but knows neither tenants nor the load of other workers: a stream in a worker's queue
// waits behind all earlier streams, and stays there even if another worker falls idle. This queue is bounded in
// streams and in prompt tokens. When there is room, a waiting stream goes to the worker that the policy chooses. A
// stream that is stopped leaves the queue at once.
//
// The order is that of virtual token counters (Sheng et al., Fairness in Serving Large Language Models, 2024): tokens
// are charged when they have been served, so the length of an answer need not be known in advance.
//
// While no worker is healthy there is no room, and streams wait: those that are in the queue, those that come, and those that were
// admitted but reached no worker, which take their places in the queue again, a few times. They wait for Options.Outage, counted from
// when the last worker became unhealthy. Then they end UNAVAILABLE, and until a worker is healthy again new streams end so at once.
// A stream that no healthy worker can serve ends at once, and holds up nobody.
//
// Deliberately absent: preemption of a running stream.
package admit

import (
	"context"
	"iter"
	"sync"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

// An Engine answers token ids.
type Engine = stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// Options say how a Queue works.
type Options struct {
	// MaxStreams is how many streams wait at most; further streams are OVERLOADED.
	MaxStreams int
	// MaxTokens is how many tokens the prompts of the waiting streams may have together.
	MaxTokens int
	// Room returns how many streams may run together, negative for no limit, and whether any worker is healthy. It must not block.
	Room func() (places int, healthy bool)
	// Outage is how long streams wait while no worker is healthy.
	Outage time.Duration
	// Admitted, if set, is called with the time that a stream has waited. It must not block.
	Admitted func(waited time.Duration)
}

// lookEvery is how often a Queue looks for room that came from elsewhere: a worker that was found or is healthy again, or another
// chat-service that has fewer streams.
const lookEvery = 250 * time.Millisecond

// A Queue is where the streams of one model wait.
type Queue struct {
	opts     Options
	turnover stream.Turnover

	mu      sync.Mutex         // guards the following fields
	tenants map[string]*tenant // those that have a stream here, and some that had
	running int
	waiting int
	tokens  int       // of the prompts that wait
	down    time.Time // since when no worker is healthy; zero while one is
}

// New returns an empty queue.
func New(opts Options) *Queue {
	return &Queue{opts: opts, tenants: make(map[string]*tenant)}
}

// Run looks for room, and for the end of an outage, until ctx is done.
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

// Load returns how many streams run, and how many wait.
func (q *Queue) Load() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running, q.waiting
}

// Stage is a stream.Stage: it calls next when there is room.
func (q *Queue) Stage(next Engine) Engine {
	return func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		served := func(out *workerv1.GenerateResponse) int { return len(out.GetTokens().GetIds()) }
		return admitted(ctx, q, req.GetClaim(), len(req.GetPrompt()), served, func() iter.Seq2[*workerv1.GenerateResponse, error] { return next(ctx, req) })
	}
}
