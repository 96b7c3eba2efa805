package route

import (
	"slices"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvcache"
	"github.com/whence-dev/whence/chat-service/route/fit"
	"github.com/whence-dev/whence/chat-service/route/policy"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/kvblock"
)

const (
	// sessionTokens is how many prompt tokens identify a session if the caller names none: more
	// than those of a chat template and a short system prompt.
	sessionTokens = 64
	// comfortable is the number of free context tokens that makes a worker eligible for a request
	// without max_tokens, regardless of the room on other workers.
	comfortable = 1024
)

// A wish describes the worker that a stream needs.
type wish struct {
	req        *workerv1.TokenRequest
	by         policy.Policy
	without    []*fleet.Worker
	accepts    func(*llmv1.WorkerInfo) bool
	idle       bool    // only workers in good standing with a free place
	well       bool    // only workers that are not in poor standing
	waiter     *waiter // the queue entry of a stream that moves; nil for others
	usesBudget bool    // choosing a worker in poor standing spends one retry of the budget
}

// An outcome is the result of a search for a worker.
type outcome int

const (
	found outcome = iota
	noWorker
	recovering // no worker fits the wish, but one in poor standing may do so after its next probe
	busy       // eligible workers exist, but they are reading enough moved streams, or an older stream goes first
	unpaid     // the budget has no retry left for the chosen worker
)

// choose picks a worker by a snapshot of each, and charges the stream to it. Workers in poor
// standing are a last resort. A stream that moves stays in the queue only if the outcome is busy.
func (p *Pool) choose(wish wish) (*attempt, outcome) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if wish.waiter != nil {
		wish.waiter.called = false
	}
	usable := p.usable(&wish, now)
	if len(usable) == 0 {
		p.queue.leave(wish.waiter) // the streams behind this one may find a worker
		return nil, noWorker
	}
	usable = withRoom(wish.req, exactFirst(wish.req, usable))
	if wish.waiter != nil {
		if p.queue.yields(wish.waiter) {
			return nil, busy
		}
		free := slices.DeleteFunc(slices.Clone(usable), func(s fleet.Snapshot) bool { return p.moving[s.Worker].Full(len(wish.req.GetPrompt()), p.together) })
		if len(free) == 0 {
			p.queue.join(wish.waiter)
			return nil, busy
		}
		usable = free
	}
	var look *kvcache.Lookup
	if p.opts.KV != nil {
		look = p.opts.KV.Lookup(wish.req)
	}
	candidates := make([]policy.Candidate, len(usable))
	for i, s := range usable {
		candidates[i] = policy.Candidate{Name: s.Name, Streams: float64(s.Streams) + s.Failures, Unread: s.Unread, Held: s.Tokens, Full: s.Full(), Cached: look.Cached(s.Worker, s.Info)}
	}
	at := wish.by(policy.Request{Prompt: len(wish.req.GetPrompt()), Named: wish.req.GetSession() != "", Session: func() uint64 { return session(wish.req) }}, candidates)
	chosen, expected := usable[at], -1
	if wish.usesBudget && chosen.Standing != fleet.Good && !p.retries.Spend(now) {
		p.opts.Metrics.Unretried()
		return nil, unpaid
	}
	if look != nil {
		expected = candidates[at].Cached
		look.Sent(chosen.Worker, chosen.Info, now)
	}
	p.opts.Metrics.Chose(fit.RoleOf(chosen.Info))
	a := newAttempt(chosen, len(wish.req.GetPrompt()), expected)
	if wish.waiter != nil {
		again := len(wish.req.GetPrompt())
		p.moving[a.worker] = p.moving[a.worker].Add(again)
		a.moved = func(begun bool) { p.settled(a.worker, again, begun, time.Since(now)) }
		p.queue.leave(wish.waiter)
	}
	return a, found
}

// usable returns the workers that fit the wish; those in poor standing only if there are no others.
func (p *Pool) usable(wish *wish, now time.Time) []fleet.Snapshot {
	var well, poor []fleet.Snapshot
	for _, w := range p.Members() {
		s := w.Snapshot(now)
		switch {
		case s.Info == nil || slices.Contains(wish.without, w) || !wish.accepts(s.Info):
		case wish.idle && (s.Standing != fleet.Good || s.Full()):
		case s.Standing == fleet.Poor && wish.well:
		case s.Standing == fleet.Poor:
			poor = append(poor, s)
		default:
			well = append(well, s)
		}
	}
	if len(well) == 0 {
		return poor
	}
	return well
}

// withRoom returns the workers with room for a comfortable answer, or for half the answer that the
// largest context has room for. If the request has max_tokens, it returns all workers.
func withRoom(req *workerv1.TokenRequest, all []fleet.Snapshot) []fleet.Snapshot {
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		return all
	}
	most := 0
	for _, s := range all {
		most = max(most, fit.Room(req, s.Info))
	}
	if most == 0 {
		return all
	}
	need := min(comfortable, most/2)
	return slices.DeleteFunc(all, func(s fleet.Snapshot) bool { return fit.Room(req, s.Info) < need })
}

// session returns the key of the session: the caller's, or a hash of the first prompt tokens.
func session(req *workerv1.TokenRequest) uint64 {
	if s := req.GetSession(); s != "" {
		return policy.Hash(0, s)
	}
	prompt := req.GetPrompt()
	return kvblock.Next(kvblock.Root(req.GetAdapter()), prompt[:min(len(prompt), sessionTokens)])
}
