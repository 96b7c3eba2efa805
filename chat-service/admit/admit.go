// Package admit holds streams back until a worker has room for them, and lets them go in a fair order: the more urgent tier
// first, within it the tenant that has had least for its weight, and within that the one that came first.
//
// A worker has a queue of its own, but it knows neither tenants nor what the other workers do: a stream that waits there waits
// behind everybody who came before, and stays although another worker falls idle. What waits here is bounded in streams and in
// tokens of prompts, goes to whichever worker the policy chooses when there is room, and leaves at once when it is stopped.
//
// The order is that of virtual token counters (Sheng et al., Fairness in Serving Large Language Models, 2024): tokens are
// charged when they have been served, so nobody needs to know how long an answer will be.
//
// Deliberately absent: taking a place from a stream that runs.
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
	// MaxStreams is how many streams wait at most; further ones are OVERLOADED.
	MaxStreams int
	// MaxTokens is how many tokens the prompts of those that wait may have together.
	MaxTokens int
	// Room returns how many streams may run together; negative while nobody knows. It must not block.
	Room func() int
	// Admitted, if there is one, is told how long a stream has waited. It must not block.
	Admitted func(waited time.Duration)
}

// lookEvery is how often a Queue looks for room that came from elsewhere: a worker that was found, or another chat-service
// that has fewer streams.
const lookEvery = 250 * time.Millisecond

// A Queue is where the streams of one model wait.
type Queue struct {
	opts     Options
	turnover stream.Turnover

	mu      sync.Mutex         // guards the following fields
	tenants map[string]*tenant // those that have a stream here, and some that had
	running int
	waiting int
	tokens  int // of the prompts that wait
}

// New returns an empty queue.
func New(opts Options) *Queue {
	return &Queue{opts: opts, tenants: make(map[string]*tenant)}
}

// Run looks for room until ctx is done.
func (q *Queue) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			q.mu.Lock()
			q.dispatch()
			q.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// Load returns how many streams run, and how many wait.
func (q *Queue) Load() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running, q.waiting
}

// Stage is a stream.Stage: it asks next when there is room.
func (q *Queue) Stage(next Engine) Engine {
	return func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			err := q.hold(ctx, req.GetClaim(), len(req.GetPrompt()), func(t *ticket) {
				for out, err := range next(ctx, req) {
					if n := len(out.GetTokens().GetIds()); n > 0 {
						q.charge(t, n)
					}
					if !yield(out, err) {
						return
					}
				}
			})
			if err != nil {
				yield(nil, err)
			}
		}
	}
}

// wait returns when the stream can run, or false when it is to end.
func (t *ticket) wait(ctx context.Context) bool {
	select {
	case <-t.ready: // at once, most of the time
		return true
	default:
	}
	select {
	case <-t.ready:
		return true
	case <-stream.Stopping(ctx):
		return false
	}
}
