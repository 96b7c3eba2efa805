// Package kvcache tracks which blocks of a prompt the workers of a pool hold in their KV caches.
//
// A Tracker follows each worker's KV events. For a worker without usable events it forecasts, for a
// time, the prompts that were sent to it. A Lookup returns how many tokens of one prompt a worker
// is expected to have cached.
package kvcache

import (
	"cmp"
	"errors"
	"flag"
	"sync"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// Options configure how policies use the workers' KV caches.
type Options struct {
	// Blocks is the maximum number of blocks in the index, for all workers together; 0 means
	// DefaultBlocks.
	Blocks int
	// TTL is how long a worker without KV events is expected to cache a prompt that was sent to it;
	// 0 means DefaultTTL.
	TTL time.Duration
	// Overlap is the weight of a cached token relative to a token that must be read; 0 ignores
	// caches.
	Overlap float64
	// Temperature is the softmax temperature over worker costs. At 0 the cheapest worker always
	// wins.
	Temperature float64
}

// Defaults of Options.
const (
	DefaultBlocks  = 1 << 20
	DefaultTTL     = 2 * time.Minute
	DefaultOverlap = 1
)

// Flags adds flags for the fields of o to fs.
func (o *Options) Flags(fs *flag.FlagSet) {
	fs.IntVar(&o.Blocks, "kv-index-blocks", DefaultBlocks, "maximum number of `blocks` in the index of policy kv, for all workers together; a block takes 43 bytes")
	fs.DurationVar(&o.TTL, "kv-approximate-ttl", DefaultTTL, "how long policy kv expects a worker without KV events to cache a prompt that was sent to it")
	fs.Float64Var(&o.Overlap, "kv-overlap-weight", DefaultOverlap, "weight of a cached block in policy kv, relative to a block that must be read")
	fs.Float64Var(&o.Temperature, "kv-temperature", 0, "softmax temperature over the worker costs of policy kv; at 0 the cheapest worker always wins")
}

// Validate returns an error that describes what is wrong with o by the names of flags, or nil.
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

// A Tracker tracks the contents of the KV caches of one pool's workers. Its methods are safe for
// concurrent use.
type Tracker struct {
	// Static.
	index   *index
	guessed *forecast // for workers that name no blocks
	awaited *forecast // for workers that name blocks, until they name them

	mu     sync.Mutex // guards the following field
	places map[*fleet.Worker]place
}

// A place is a worker's number in the index, and whether the worker names the blocks that it holds.
type place struct {
	number  workerNumber
	reports bool
}

// awaitedTTL is how long a worker may take to report the blocks of a prompt that was sent to it:
// the time in its queue and for reading the prompt.
const awaitedTTL = 10 * time.Second

// New returns the tracker for one pool. The options must be valid.
func New(opts Options) *Tracker {
	opts.Blocks, opts.TTL = cmp.Or(opts.Blocks, DefaultBlocks), cmp.Or(opts.TTL, DefaultTTL)
	x := newIndex(opts.Blocks)
	return &Tracker{
		index: x, guessed: newForecast(x, opts.TTL), awaited: newForecast(x, awaitedTTL),
		places: make(map[*fleet.Worker]place),
	}
}

// A Lookup looks up one request in the index. It hashes the prompt once for each block size. Most
// workers have the same block size.
type Lookup struct {
	tracker *Tracker
	req     *workerv1.TokenRequest
	sizes   []chain
}

// A chain is a prompt in blocks of one size, with its overlap in the index.
type chain struct {
	size    int
	names   []uint64
	overlap overlap
}

// Lookup returns a lookup of a request.
func (t *Tracker) Lookup(req *workerv1.TokenRequest) *Lookup { return &Lookup{tracker: t, req: req} }

// in returns the chain of the request for a block size, or nil for size 0.
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
	if len(l.req.GetImages()) > 0 { // engines hash the images into the names of all later blocks
		prompt = prompt[:min(int(l.req.GetBeforeImages()), len(prompt))]
	}
	s := chain{size: size, names: kvblock.Chain(make([]uint64, 0, len(prompt)/size), kvblock.Root(l.req.GetAdapter()), prompt, size)}
	s.overlap = l.tracker.index.Match(s.names)
	l.sizes = append(l.sizes, s)
	return &l.sizes[len(l.sizes)-1]
}

// Cached returns the number of tokens of the request that a worker is expected to have cached. The
// last token is always read. A nil lookup returns 0.
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

// Sent records that the worker gets the request.
func (l *Lookup) Sent(w *fleet.Worker, info *llmv1.WorkerInfo, now time.Time) {
	at, known := l.tracker.place(w)
	s := l.in(int(info.GetKvBlockSize()))
	if s == nil || !known {
		return
	}
	l.tracker.forecast(at).Sent(at.number, s.names, now)
}

func (t *Tracker) forecast(at place) *forecast {
	if at.reports {
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
