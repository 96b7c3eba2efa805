// Package kvcache tracks which blocks of a prompt the workers of a pool hold in their KV caches.
//
// A Tracker follows each worker's KV events. It expects a worker without usable events to cache the prompts that were
// sent to it, for a time. A Lookup answers for one prompt how many of its tokens a worker is expected to hold.
package kvcache

import (
	"cmp"
	"errors"
	"flag"
	"sync"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvindex"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// Options say how policies use the KV caches of workers.
type Options struct {
	// Blocks is how many blocks of KV cache the index knows, of all workers together; DefaultBlocks if 0.
	Blocks int
	// TTL is how long a worker without named blocks is expected to cache a prompt that was sent to it; DefaultTTL
	// if 0.
	TTL time.Duration
	// Overlap is the weight of a cached token relative to a token that must be read; 0 ignores caches.
	Overlap float64
	// Temperature is the softmax temperature over worker costs. At 0 the cheapest worker always wins.
	Temperature float64
}

// Defaults of Options.
const (
	DefaultBlocks  = 1 << 20
	DefaultTTL     = 2 * time.Minute
	DefaultOverlap = 1
)

// Flags adds the flags of o to fs.
func (o *Options) Flags(fs *flag.FlagSet) {
	fs.IntVar(&o.Blocks, "kv-index-blocks", DefaultBlocks, "`blocks` of KV cache that policy kv remembers, of all workers together, 43 bytes each")
	fs.DurationVar(&o.TTL, "kv-approximate-ttl", DefaultTTL, "how long policy kv expects a worker that tells nothing to hold what was sent to it")
	fs.Float64Var(&o.Overlap, "kv-overlap-weight", DefaultOverlap, "how much a cached block counts with policy kv, against one that is to be read")
	fs.Float64Var(&o.Temperature, "kv-temperature", 0, "softmax temperature over the worker costs of policy kv; at 0 the cheapest worker always wins")
}

// Validate reports what is wrong with o, by the names of flags.
func (o *Options) Validate() error {
	switch {
	case o.Blocks < 0 || o.Blocks > 1<<30:
		return errors.New("--kv-index-blocks must be from 1 to 1,073,741,824")
	case o.TTL < 0:
		return errors.New("--kv-approximate-ttl must not be negative")
	case !(o.Overlap >= 0 && o.Overlap <= 1000) || !(o.Temperature >= 0 && o.Temperature <= 1000):
		return errors.New("--kv-overlap-weight and --kv-temperature must be from 0 to 1000")
	}
	return nil
}

// A Tracker tracks the contents of the KV caches of one pool's workers. Its methods are safe for concurrent use.
type Tracker struct {
	// Static.
	index   *kvindex.Index
	guessed *kvindex.Forecast // of workers that name no blocks
	awaited *kvindex.Forecast // of workers that will name the blocks soon

	mu     sync.Mutex // guards the following field
	places map[*fleet.Worker]place
}

// A place is a worker's number in the index, and whether it has named blocks that it holds.
type place struct {
	number kvindex.Worker
	tells  bool
}

// awaitedTTL is how long a worker may take to tell that it holds what was sent to it: what its queue and the prompt take.
const awaitedTTL = 10 * time.Second

// New returns the tracker of one pool. The options must be valid.
func New(opts Options) *Tracker {
	opts.Blocks, opts.TTL = cmp.Or(opts.Blocks, DefaultBlocks), cmp.Or(opts.TTL, DefaultTTL)
	x := kvindex.New(opts.Blocks)
	return &Tracker{
		index: x, guessed: kvindex.NewForecast(x, opts.TTL), awaited: kvindex.NewForecast(x, awaitedTTL),
		places: make(map[*fleet.Worker]place),
	}
}

// A Lookup is one request's lookup in the index. It hashes the prompt once for each block size; workers mostly have
// the same size.
type Lookup struct {
	tracker *Tracker
	req     *workerv1.TokenRequest
	sizes   []chain
}

// A chain is a prompt in blocks of one size, with its matches in the index.
type chain struct {
	size    int
	names   []uint64
	overlap kvindex.Overlap
}

// Lookup returns the lookup of a request.
func (t *Tracker) Lookup(req *workerv1.TokenRequest) *Lookup { return &Lookup{tracker: t, req: req} }

// in returns the request in blocks of a size; nil for none.
func (l *Lookup) in(size int) *chain {
	if size <= 0 {
		return nil
	}
	for i := range l.sizes {
		if l.sizes[i].size == size {
			return &l.sizes[i]
		}
	}
	prompt := l.req.GetPrompt()
	if len(l.req.GetImages()) > 0 { // engines hash images, or what they make of them, into the blocks behind
		prompt = prompt[:min(int(l.req.GetBeforeImages()), len(prompt))]
	}
	s := chain{size: size, names: kvblock.Chain(make([]uint64, 0, len(prompt)/size), kvblock.Root(l.req.GetAdapter()), prompt, size)}
	s.overlap = l.tracker.index.Match(s.names)
	l.sizes = append(l.sizes, s)
	return &l.sizes[len(l.sizes)-1]
}

// Cached returns how many tokens of the request a worker is expected to find in its cache. The last is always read. A nil
// lookup expects none.
func (l *Lookup) Cached(w *fleet.Worker, info *llmv1.WorkerInfo) int {
	if l == nil {
		return 0
	}
	at, known := l.tracker.place(w)
	s := l.in(int(info.GetKvBlockSize()))
	if s == nil || !known {
		return 0
	}
	return max(0, min(s.overlap[at.number]*s.size, len(l.req.GetPrompt())-1))
}

// Sent records that a worker gets the request.
func (l *Lookup) Sent(w *fleet.Worker, info *llmv1.WorkerInfo, now time.Time) {
	at, known := l.tracker.place(w)
	s := l.in(int(info.GetKvBlockSize()))
	if s == nil || !known {
		return
	}
	l.tracker.forecast(at).Sent(at.number, s.names, now)
}

func (t *Tracker) forecast(at place) *kvindex.Forecast {
	if at.tells {
		return t.awaited
	}
	return t.guessed
}

func (t *Tracker) place(w *fleet.Worker) (at place, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, known = t.places[w]
	return at, known
}
