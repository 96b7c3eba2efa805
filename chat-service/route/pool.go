// Package route finds a worker for a stream, and another worker when the first fails.
//
// A Pool is a stream.Engine over the workers of a fleet. Package policy chooses among the healthy workers, and
// package failover decides how a stream continues when its worker fails: before the first token the request is
// retried on another worker; after it another worker continues from the prompt and the answer so far. The caller sees
// one stream: Started once, every token once, and one ending with the usage of the whole stream. Of a stream the pool
// keeps only the tokens, at most as many as fit into the context.
//
// Deliberately absent: moving a stream off a healthy worker whose tokens flow, and asking two workers at once.
package route

import (
	"context"
	"log/slog"
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

// Options say how a Pool works.
type Options struct {
	// Self is this hop's name.
	Self    string
	Connect fleet.Connect // see fleet.Options
	// Policy chooses the worker of a stream; nil is policy.LeastLoaded.
	Policy policy.Policy
	// Prompts chooses the prefill worker of a prompt; nil means the worker with the fewest tokens to read.
	Prompts policy.Policy
	// HandoverAbove is how many tokens a prompt must have that its worker has not in its cache, for another one to read them: fewer
	// are read sooner than fetched.
	HandoverAbove int
	// KV knows what the workers have cached; nil is nobody.
	KV *kvcache.Tracker
	// Metrics counts choices, retries, moves and cool-downs; nil counts nothing.
	Metrics *metrics.Router
	// Migrations is how often a stream may move once it has had a token.
	Migrations int
	// MigrateAfter is how long a worker may send nothing, once tokens flow and until it has admitted a stream, before another
	// one goes on; 0 is for ever. Where there is no other one it is waited for.
	MigrateAfter time.Duration
	// FirstTokenMove is the maximum time from a stream's admission to its first token before a worker with a free
	// place takes over, plus as much for every failover.TokensPerPatience tokens that the worker has to read first; 0
	// means no limit.
	FirstTokenMove time.Duration
	// Check says why a worker that answers cannot be used.
	Check func(*llmv1.WorkerInfo) error
	// Log gets a line for each move, and for each change of a worker's health.
	Log *slog.Logger
}

// A Pool is the workers of one model, and chooses among them.
type Pool struct {
	*fleet.Fleet

	// Static.
	opts    Options
	retries failover.Budget
	calls   sync.WaitGroup

	mu              sync.Mutex                   // guards the following fields, while one is called
	policy, prompts policy.Policy                // may remember
	moving          map[*fleet.Worker]pace.Moves // no zeros
	together        int                          // pace.Tokens, but in tests
	queue           queue
}

// New returns a pool without workers. Set gives it some, and Watch probes them.
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

// Policies returns what Options need for a policy by name: the policy of streams, the policy of prompts that one
// worker reads for another, and the tracker of KV caches, which is nil if the policy ignores them.
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

// named returns a policy of a name that is known to be good.
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

// Close awaits the calls that streams have left behind, and closes the connections. The streams must have ended.
func (p *Pool) Close() {
	_ = p.Set() // it fails only for workers that come
	p.calls.Wait()
}

// take chooses a worker for a stream.
func (p *Pool) take(wish wish, positions int) (*attempt, outcome) {
	wish.by = p.policy
	wish.may = func(info *llmv1.WorkerInfo) bool {
		return fleet.Answers(info) && int(info.GetContextLength()) >= positions && fit.Takes(info, wish.req)
	}
	return p.choose(wish)
}

// takeReader chooses a worker that reads a prompt for another worker; nil if there is none.
func (p *Pool) takeReader(req *workerv1.TokenRequest, without []*fleet.Worker) *attempt {
	a, _ := p.choose(wish{req: req, by: p.prompts, without: without, may: func(info *llmv1.WorkerInfo) bool {
		return info.GetRole() == llmv1.Role_ROLE_PREFILL && int(info.GetContextLength()) > len(req.GetPrompt())
	}})
	return a
}

// Retry takes one retry from the pool's budget, for a request that a stage above the pool repeats. It reports false if the budget
// is spent.
func (p *Pool) Retry() bool { return p.retries.Spend(time.Now()) }
