// Package route finds a worker for a stream, and another worker when the first fails.
//
// A Pool is a stream.Engine over the workers of a fleet. Package policy chooses among the healthy
// workers, and package failover decides how a stream continues when its worker fails: before the
// first token the request is retried on another worker; after it, another worker continues from the
// prompt and the answer so far. The caller sees one stream: Started once, every token once, and one
// ending with the usage of the whole stream. The pool buffers only token ids, at most one context
// of them per stream.
//
// Deliberately absent: moving a stream off a worker whose tokens flow, and hedged requests.
package route

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvcache"
	"github.com/whence-dev/whence/chat-service/route/failover"
	"github.com/whence-dev/whence/chat-service/route/fit"
	"github.com/whence-dev/whence/chat-service/route/pace"
	"github.com/whence-dev/whence/chat-service/route/policy"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Options configure a Pool.
type Options struct {
	// Self is this hop's name.
	Self    string
	Connect fleet.Connect // see fleet.Options
	// Policy chooses the worker of a stream; nil is policy.LeastLoaded.
	Policy policy.Policy
	// Prompts chooses the prefill worker of a prompt; nil means the fewest tokens to read.
	Prompts policy.Policy
	// HandoverAbove is the number of uncached prompt tokens above which a prefill worker reads the
	// prompt. Fewer tokens are read faster than their KV cache is transferred.
	HandoverAbove int
	// KV tracks the contents of the workers' KV caches; nil tracks nothing.
	KV *kvcache.Tracker
	// Metrics counts choices, retries, moves and cool-downs; nil counts nothing.
	Metrics *metrics.Router
	// Migrations is the maximum number of moves of a stream after its first token.
	Migrations int
	// MigrateAfter is the maximum silence of a worker, before it admits a stream and between
	// tokens, before another worker (if there is one) continues the stream; 0 means no limit.
	MigrateAfter time.Duration
	// FirstTokenMove is the maximum time from a stream's admission to its first token before a
	// worker with a free place takes over, plus as much for every failover.TokensPerPatience tokens
	// that the worker has to read first; 0 means no limit.
	FirstTokenMove time.Duration
	// Check returns why a worker that responds cannot be used, or nil.
	Check func(*llmv1.WorkerInfo) error
	// Log gets a line for each move and for each change of a worker's health.
	Log *slog.Logger
}

// A Pool holds the workers of one model and chooses among them.
type Pool struct {
	*fleet.Fleet

	// Static.
	opts    Options
	retries failover.Budget
	calls   sync.WaitGroup

	mu              sync.Mutex                   // guards the following fields, and calls of the policies
	policy, prompts policy.Policy                // may be stateful
	moving          map[*fleet.Worker]pace.Moves // no zero values
	together        int                          // pace.Tokens, except in tests
	queue           queue
}

// New returns a pool without workers. Set adds workers, and Watch probes them.
func New(opts Options) *Pool {
	workers := fleet.Options{Self: opts.Self, Connect: opts.Connect, Check: opts.Check, Log: opts.Log, Cooled: func(why streamerr.Reason) { opts.Metrics.Cooled(why) }}
	if opts.KV != nil {
		workers.Follow = opts.KV.Follow
	}
	p := &Pool{Fleet: fleet.New(workers), opts: opts, policy: opts.Policy, prompts: opts.Prompts, moving: make(map[*fleet.Worker]pace.Moves), together: pace.Tokens}
	if p.policy == nil {
		p.policy = named(policy.LeastLoaded)
	}
	if p.prompts == nil {
		p.prompts = named(policy.ForPrompts(policy.LeastLoaded))
	}
	return p
}

// Policies returns the policy of streams, the policy of prefill workers, and the tracker of KV caches
// (nil if the policy ignores them) for a named policy.
func Policies(name string, opts kvcache.Options) (streams, prompts policy.Policy, kv *kvcache.Tracker, err error) {
	tuning := policy.Options{Overlap: opts.Overlap, Temperature: opts.Temperature}
	if streams, err = policy.Parse(name, tuning); err != nil {
		return nil, nil, nil, err
	}
	if prompts, err = policy.Parse(policy.ForPrompts(name), tuning); err != nil {
		return nil, nil, nil, err
	}
	if policy.UsesCache(name) {
		kv = kvcache.New(opts)
	}
	return streams, prompts, kv, nil
}

// TakesImages reports whether the engine of a healthy worker takes images. It is true if no worker
// says what its engine takes.
func (p *Pool) TakesImages() bool {
	told := false
	for _, w := range p.Members() {
		can := w.Info().GetCapabilities()
		if can.GetImages() != llmv1.ImageInput_IMAGE_INPUT_UNSPECIFIED {
			return true
		}
		told = told || can != nil
	}
	return !told
}

// named returns the policy of a name that must exist.
func named(name string) policy.Policy {
	p, err := policy.Parse(name, policy.Options{})
	if err != nil {
		panic(err)
	}
	return p
}

func (o *Options) limits() failover.Limits {
	return failover.Limits{Moves: o.Migrations, Silence: o.MigrateAfter, FirstToken: o.FirstTokenMove}
}

// Watch probes the workers until ctx is done; see fleet.Fleet.
func (p *Pool) Watch(ctx context.Context, changed func(healthy bool)) {
	p.Fleet.Watch(ctx, func(healthy bool) {
		p.callOldest()
		changed(healthy)
	})
}

// Close waits for abandoned calls and closes the connections. All streams must have ended.
func (p *Pool) Close() {
	_ = p.Set() // only adding workers can fail
	p.calls.Wait()
}

// take chooses a worker for a stream.
func (p *Pool) take(wish wish, positions int) (*attempt, outcome) {
	wish.by = p.policy
	wish.accepts = accepts(wish.req, positions)
	return p.choose(wish)
}

// accepts returns a function that reports whether a worker's capabilities and context suffice for
// a request.
func accepts(req *workerv1.TokenRequest, positions int) func(*llmv1.WorkerInfo) bool {
	return func(info *llmv1.WorkerInfo) bool {
		return fleet.Answers(info) && int(info.GetContextLength()) >= positions && fit.Takes(info, req)
	}
}

// awaitProbes has probed called after the next probe of each worker that fits the wish and may
// recover from a failure after since. The outcome is recovering, or noWorker if there is none.
func (p *Pool) awaitProbes(wish wish, positions int, since time.Time, probed func()) outcome {
	outcome, fits := noWorker, accepts(wish.req, positions)
	for _, w := range p.Members() {
		if !slices.Contains(wish.without, w) && fits(w.Last()) && w.AwaitRecovery(since, probed) {
			outcome = recovering
		}
	}
	return outcome
}

// takeReader chooses a prefill worker for a prompt, or returns nil if there is none.
func (p *Pool) takeReader(req *workerv1.TokenRequest, without []*fleet.Worker) *attempt {
	a, _ := p.choose(wish{req: req, by: p.prompts, without: without, accepts: func(info *llmv1.WorkerInfo) bool {
		return info.GetRole() == llmv1.Role_ROLE_PREFILL && int(info.GetContextLength()) > len(req.GetPrompt())
	}})
	return a
}

// Retry takes one retry from the budget for a stage above the pool, or reports false if it is
// empty.
func (p *Pool) Retry() bool { return p.retries.Spend(time.Now()) }
