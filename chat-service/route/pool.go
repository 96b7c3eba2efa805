// Package route finds the worker that answers a stream, and another one when it is lost.
//
// A Pool is a stream.Engine over several workers. Each worker is probed, a Policy chooses among the healthy, and what a
// worker's death would end goes on elsewhere: before the first token by asking the next worker, in mid-stream by asking it
// to go on from prompt and answer so far. Its caller sees one stream: Started once, every token once, one ending, with the
// usage of the whole. Nothing is kept of a stream but its tokens, of which there are at most as many as the context holds.
//
// Deliberately absent: moving a stream off a healthy worker, and asking two workers at once.
package route

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/metrics"
)

// MaxWorkers bounds a pool, because all of them may be asked at once what they know of a stream. A Worker's Slot is below it.
const MaxWorkers = 64

// Options say how a Pool works.
type Options struct {
	// Self is this hop's name.
	Self string
	// Policy chooses; nil is LeastLoaded, or KV's if there is one.
	Policy Policy
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

// A Pool is the workers of one model.
type Pool struct {
	// Static.
	opts    Options
	retries budget
	calls   sync.WaitGroup

	workers atomic.Pointer[[]*Worker] // replaced by Set, never changed

	mu      sync.Mutex          // guards the following fields, and is held while workers is replaced
	policy  Policy              // may remember
	names   map[*Worker]string  // of those that are healthy, and no two alike
	slots   [MaxWorkers]*Worker // whose each is
	leaving []*Worker           // no members any more, but they have streams
	probe   func(*Worker)       // has a worker watched; nil while Watch does not run
	changed func(healthy bool)  // what Watch was given
}

// New returns a pool without workers. Set gives it some, and Watch asks them how they are.
func New(opts Options) *Pool {
	p := &Pool{opts: opts, policy: opts.Policy, names: make(map[*Worker]string)}
	switch {
	case p.policy != nil:
	case opts.KV != nil:
		p.policy = opts.KV.choose
	default:
		p.policy = LeastLoaded()
	}
	p.workers.Store(new([]*Worker))
	return p
}

// Close awaits the calls that streams have left behind, and closes the connections. The streams must have ended.
func (p *Pool) Close() {
	_ = p.Set() // it fails only for workers that come
	p.calls.Wait()
}

// check says why a worker that answers cannot be used: it does not fit, or its name is another one's. Names stand in paths,
// so two workers of one name could not be told apart; the first that is healthy keeps it until it no longer is.
func (p *Pool) check(w *Worker, info *workerv1.InfoResponse) error {
	if err := p.opts.Check(info); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.leaving.Load() {
		return errors.New("it is no longer listed")
	}
	for other, name := range p.names {
		if other != w && name == info.GetInstance() {
			return fmt.Errorf("the workers at %s and %s are both called %s: give each its own --name", other.target, w.target, name)
		}
	}
	p.names[w] = info.GetInstance()
	return nil
}

// take chooses a worker that req fits, none of without, and counts the stream as the worker's; nil if there is none. positions is
// how many tokens its context must hold. A worker under suspicion is better than none.
func (p *Pool) take(req *workerv1.TokenRequest, positions int, without []*Worker) *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	var trusted, doubted []*Worker
	infos := make(map[*Worker]*workerv1.InfoResponse) // as of now
	for _, w := range p.members() {
		info := w.info.Load()
		if info == nil || slices.Contains(without, w) || int(info.GetContextLength()) < positions || !fits(req, info) {
			continue
		}
		infos[w] = info
		if w.trust.holds() {
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
	w := p.policy(req, exactFirst(req, trusted, infos))
	expected := -1
	if p.opts.KV != nil {
		expected = p.opts.KV.sent(w, req)
	}
	p.opts.Metrics.Chose(expected)
	return newAttempt(w, infos[w], len(req.GetPrompt()), expected)
}
