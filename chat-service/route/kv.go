package route

import (
	"cmp"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvindex"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// KVOptions say how the policy kv chooses.
type KVOptions struct {
	// Blocks is how many blocks of KV cache the index knows, of all workers together; DefaultKVBlocks if 0.
	Blocks int
	// TTL is for how long a worker that names no blocks is taken to hold what was sent to it; DefaultKVTTL if 0.
	TTL time.Duration
	// Overlap is how many blocks that need not be read a block counts that a worker holds; 0 ignores caches.
	Overlap float64
	// Temperature spreads choices: 0 takes the cheapest worker, more draws others the likelier the less dearer they are.
	Temperature float64
}

// Defaults of KVOptions.
const (
	DefaultKVBlocks  = 1 << 20
	DefaultKVTTL     = 2 * time.Minute
	DefaultKVOverlap = 1
)

// Flags adds the flags of o to fs.
func (o *KVOptions) Flags(fs *flag.FlagSet) {
	fs.IntVar(&o.Blocks, "kv-index-blocks", DefaultKVBlocks, "`blocks` of KV cache that policy kv remembers, of all workers together, 43 bytes each")
	fs.DurationVar(&o.TTL, "kv-approximate-ttl", DefaultKVTTL, "how long policy kv expects a worker that tells nothing to hold what was sent to it")
	fs.Float64Var(&o.Overlap, "kv-overlap-weight", DefaultKVOverlap, "how much a cached block counts with policy kv, against one that is to be read")
	fs.Float64Var(&o.Temperature, "kv-temperature", 0, "how far policy kv strays from the cheapest worker; 0 for never")
}

// Validate reports what is wrong with o, by the names of flags.
func (o *KVOptions) Validate() error {
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

// A KV knows what the workers of a pool have in their KV caches, and is its policy:
//
//	cost = max(0, tokens to be read - weight * tokens held) + tokens in use + active streams, in blocks
//
// where tokens to be read are this prompt's and those of prompts that the worker has not read yet, and tokens in use are what its
// streams and this one take of its cache. The cheapest worker wins. The form is that of NVIDIA Dynamo's router.
type KV struct {
	// Static.
	opts    KVOptions
	index   *kvindex.Index
	guessed *kvindex.Forecast // of workers that name no blocks
	awaited *kvindex.Forecast // of workers that will name the blocks soon

	mu     sync.Mutex // guards the following field
	places map[*fleet.Worker]place

	// Guarded by the pool's mu.
	plan plan
}

// A place is a worker's number in the index, and whether it has named blocks that it holds.
type place struct {
	number kvindex.Worker
	tells  bool
}

// awaitedTTL is how long a worker may take to tell that it holds what was sent to it: what its queue and the prompt take.
const awaitedTTL = 10 * time.Second

// NewKV returns the KV of one pool. The options must be valid.
func NewKV(opts KVOptions) *KV {
	opts.Blocks, opts.TTL = cmp.Or(opts.Blocks, DefaultKVBlocks), cmp.Or(opts.TTL, DefaultKVTTL)
	x := kvindex.New(opts.Blocks)
	return &KV{
		opts: opts, index: x, guessed: kvindex.NewForecast(x, opts.TTL), awaited: kvindex.NewForecast(x, awaitedTTL),
		places: make(map[*fleet.Worker]place),
	}
}

// A plan is what is found out about a request before a worker is chosen, so that it is found out once.
type plan struct {
	req   *workerv1.TokenRequest
	sizes []sized
}

// sized is a prompt in blocks of one size. Workers mostly have the same.
type sized struct {
	size    int
	names   []uint64
	overlap kvindex.Overlap
}

// of returns the request in blocks of a size; nil for none.
func (p *plan) of(req *workerv1.TokenRequest, size int, index *kvindex.Index) *sized {
	if p.req != req {
		*p = plan{req: req}
	}
	if size <= 0 {
		return nil
	}
	for i := range p.sizes {
		if p.sizes[i].size == size {
			return &p.sizes[i]
		}
	}
	s := sized{size: size, names: kvblock.Chain(make([]uint64, 0, len(req.GetPrompt())/size), 0, req.GetPrompt(), size)}
	s.overlap = index.Match(s.names)
	p.sizes = append(p.sizes, s)
	return &p.sizes[len(p.sizes)-1]
}

// cached returns how many tokens of the request a worker is expected to find in its cache. The last is always read.
func (k *KV) cached(w *fleet.Worker, req *workerv1.TokenRequest) (tokens int, s *sized, at place) {
	k.mu.Lock()
	at, known := k.places[w]
	k.mu.Unlock()
	s = k.plan.of(req, int(w.Info().GetKvBlockSize()), k.index)
	if s == nil || !known {
		return 0, nil, at
	}
	return min(s.overlap[at.number]*s.size, len(req.GetPrompt())-1), s, at
}

// costUnit is how many tokens are a block in costs, whatever the workers' blocks are.
const costUnit = 16

// cost is what it takes a worker to answer a request, in blocks.
func (k *KV) cost(w *fleet.Worker, req *workerv1.TokenRequest) float64 {
	cached, _, _ := k.cached(w, req)
	prompt := float64(len(req.GetPrompt()))
	read := max(0, float64(w.Unread())+prompt-k.opts.Overlap*float64(cached))
	use := float64(w.Tokens()) + prompt - float64(cached)
	return (read+use)/costUnit + float64(w.Load())
}

// policy returns a Policy. Of workers that cost the same, each is taken in turn.
func (k *KV) policy() Policy {
	turn := 0
	return func(req *workerv1.TokenRequest, candidates []*fleet.Worker) *fleet.Worker {
		turn++
		return k.choose(req, candidates, turn)
	}
}

func (k *KV) choose(req *workerv1.TokenRequest, candidates []*fleet.Worker, turn int) *fleet.Worker {
	costs := make([]float64, len(candidates))
	best, least, most := 0, math.Inf(1), math.Inf(-1)
	for i := range candidates {
		at := (turn + i) % len(candidates)
		costs[at] = k.cost(candidates[at], req)
		if costs[at] < least {
			best, least = at, costs[at]
		}
		most = max(most, costs[at])
	}
	if k.opts.Temperature <= 0 || most <= least {
		return candidates[best]
	}
	var total float64
	for i, c := range costs {
		costs[i] = math.Exp((least - c) / (most - least) / k.opts.Temperature)
		total += costs[i]
	}
	left := rand.Float64() * total
	for i, weight := range costs {
		if left -= weight; left < 0 {
			return candidates[i]
		}
	}
	return candidates[best] // only by rounding
}

// sent notes that a worker gets a request, and returns how many of its tokens are expected to be cached there.
func (k *KV) sent(w *fleet.Worker, req *workerv1.TokenRequest) (cached int) {
	cached, s, at := k.cached(w, req)
	k.plan = plan{}
	if s != nil {
		k.forecast(at).Sent(at.number, s.names, time.Now())
	}
	return cached
}

func (k *KV) forecast(at place) *kvindex.Forecast {
	if at.tells {
		return k.awaited
	}
	return k.guessed
}
