// Package route finds the worker that answers a stream, and another one when it is lost.
//
// A Pool is a stream.Engine over the workers of a fleet. A Policy chooses among the healthy, and what a worker's death would end
// goes on elsewhere: before the first token by asking the next worker, in mid-stream by asking it to go on from prompt and answer
// so far. Its caller sees one stream: Started once, every token once, one ending, with the usage of the whole. Nothing is kept of
// a stream but its tokens, of which there are at most as many as the context holds.
//
// Deliberately absent: moving a stream off a healthy worker, and asking two workers at once.
package route

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/metrics"
)

// Options say how a Pool works.
type Options struct {
	// Self is this hop's name.
	Self string
	// Policy chooses; nil is LeastLoaded, or KV's if there is one.
	Policy Policy
	// Prompts chooses who reads a prompt for another worker; nil is LeastUnread, or KV's if there is one.
	Prompts Policy
	// HandoverAbove is how many tokens a prompt must have that its worker has not in its cache, for another one to read them: fewer
	// are read sooner than fetched.
	HandoverAbove int
	// KV knows what the workers have cached; nil is nobody.
	KV *KV
	// Metrics counts what was chosen; nil counts nothing.
	Metrics *metrics.Router
	// Migrations is how often a stream may move once it has had a token.
	Migrations int
	// MigrateAfter is how long a worker may send nothing, once tokens flow and until it has admitted a stream, before another
	// one goes on; 0 is for ever. Where there is no other one it is waited for.
	MigrateAfter time.Duration
	// Check says why a worker that answers cannot be used.
	Check func(*workerv1.InfoResponse) error
	// Log gets a line for each move, and for each change of a worker's health.
	Log *slog.Logger
}

// A Pool is the workers of one model, and chooses among them.
type Pool struct {
	*fleet.Fleet

	// Static.
	opts    Options
	retries budget
	calls   sync.WaitGroup

	mu              sync.Mutex // guards the following fields, while one is called
	policy, prompts Policy     // may remember
}

// New returns a pool without workers. Set gives it some, and Watch asks them how they are.
func New(opts Options) *Pool {
	workers := fleet.Options{Self: opts.Self, Check: opts.Check, Log: opts.Log}
	if opts.KV != nil {
		workers.Follow = opts.KV.follow
	}
	p := &Pool{Fleet: fleet.New(workers), opts: opts, policy: opts.Policy, prompts: opts.Prompts}
	byLoad, byUnread := LeastLoaded, LeastUnread
	if opts.KV != nil {
		byLoad, byUnread = opts.KV.policy, opts.KV.policy
	}
	if p.policy == nil {
		p.policy = byLoad()
	}
	if p.prompts == nil {
		p.prompts = byUnread()
	}
	return p
}

// Close awaits the calls that streams have left behind, and closes the connections. The streams must have ended.
func (p *Pool) Close() {
	_ = p.Set() // it fails only for workers that come
	p.calls.Wait()
}

// take chooses a worker that req fits, none of without, and counts the stream as the worker's; nil if there is none. positions is
// how many tokens its context must hold. A worker under suspicion is better than none.
func (p *Pool) take(req *workerv1.TokenRequest, positions int, without []*fleet.Worker) *attempt {
	return p.choose(p.policy, req, without, func(info *workerv1.InfoResponse) bool {
		return fleet.Answers(info) && int(info.GetContextLength()) >= positions && fits(req, info)
	})
}

// takeReader does the same for a prompt that is to be read for another worker.
func (p *Pool) takeReader(req *workerv1.TokenRequest, without []*fleet.Worker) *attempt {
	return p.choose(p.prompts, req, without, func(info *workerv1.InfoResponse) bool {
		return info.GetRole() == workerv1.Role_ROLE_PREFILL && int(info.GetContextLength()) > len(req.GetPrompt())
	})
}

func (p *Pool) choose(by Policy, req *workerv1.TokenRequest, without []*fleet.Worker, may func(*workerv1.InfoResponse) bool) *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	var trusted, doubted []*fleet.Worker
	infos := make(map[*fleet.Worker]*workerv1.InfoResponse) // as of now
	for _, w := range p.Members() {
		info := w.Info()
		if info == nil || slices.Contains(without, w) || !may(info) {
			continue
		}
		infos[w] = info
		if w.Trusted() {
			trusted = append(trusted, w)
		} else {
			doubted = append(doubted, w)
		}
	}
	if len(trusted) == 0 {
		trusted = doubted
	}
	if len(trusted) == 0 {
		return nil
	}
	w := by(req, exactFirst(req, trusted, infos))
	expected := -1
	if p.opts.KV != nil {
		expected = p.opts.KV.sent(w, req)
	}
	p.opts.Metrics.Chose(roleOf(infos[w]))
	return newAttempt(w, infos[w], len(req.GetPrompt()), expected)
}

func roleOf(info *workerv1.InfoResponse) string {
	switch info.GetRole() {
	case workerv1.Role_ROLE_PREFILL:
		return metrics.RolePrefill
	case workerv1.Role_ROLE_DECODE:
		return metrics.RoleDecode
	default:
		return metrics.RoleBoth
	}
}
