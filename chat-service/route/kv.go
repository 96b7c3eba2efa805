package route

import (
	"cmp"
	"errors"
	"flag"
	"sync"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvindex"
	"github.com/whence-dev/whence/chat-service/route/policy"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// KVOptions say how policies use the KV caches of workers.
type KVOptions struct {
	// Blocks is how many blocks of KV cache the index knows, of all workers together; DefaultKVBlocks if 0.
	Blocks int
	// TTL is how long a worker without named blocks is expected to cache a prompt that was sent to it; DefaultKVTTL
	// if 0.
	TTL time.Duration
	// Overlap is the weight of a cached token relative to a token that must be read; 0 ignores caches.
	Overlap float64
	// Temperature is the softmax temperature over worker costs. At 0 the cheapest worker always wins.
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
	fs.Float64Var(&o.Temperature, "kv-temperature", 0, "softmax temperature over the worker costs of policy kv; at 0 the cheapest worker always wins")
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

// Policies returns what Options need for a policy by name: the policy of streams, the policy of prompts that one
// worker reads for another, and the KV, which is nil if the policy ignores caches.
func Policies(name string, opts KVOptions) (streams, prompts policy.Policy, kv *KV, err error) {
	tuning := policy.Options{Overlap: opts.Overlap, Temperature: opts.Temperature}
	if streams, err = policy.Parse(name, tuning); err != nil {
		return nil, nil, nil, err
	}
	if prompts, err = policy.Parse(policy.ForPrompts(name), tuning); err != nil {
		return nil, nil, nil, err
	}
	if policy.UsesCache(name) {
		kv = NewKV(opts)
	}
	return streams, prompts, kv, nil
}

// A KV tracks the contents of the workers' KV caches.
type KV struct {
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

// NewKV returns the KV of one pool. The options must be valid.
func NewKV(opts KVOptions) *KV {
	opts.Blocks, opts.TTL = cmp.Or(opts.Blocks, DefaultKVBlocks), cmp.Or(opts.TTL, DefaultKVTTL)
	x := kvindex.New(opts.Blocks)
	return &KV{
		index: x, guessed: kvindex.NewForecast(x, opts.TTL), awaited: kvindex.NewForecast(x, awaitedTTL),
		places: make(map[*fleet.Worker]place),
	}
}

// A lookup is one request's lookup in the index. It hashes the prompt once for each block size; workers mostly have
// the same size.
type lookup struct {
	kv    *KV
	req   *workerv1.TokenRequest
	sizes []sized
}

// A sized is a prompt in blocks of one size, with its matches in the index.
type sized struct {
	size    int
	names   []uint64
	overlap kvindex.Overlap
}

// look returns the lookup of a request.
func (k *KV) look(req *workerv1.TokenRequest) *lookup { return &lookup{kv: k, req: req} }

// in returns the request in blocks of a size; nil for none.
func (l *lookup) in(size int) *sized {
	if size <= 0 {
		return nil
	}
	for i := range l.sizes {
		if l.sizes[i].size == size {
			return &l.sizes[i]
		}
	}
	s := sized{size: size, names: kvblock.Chain(make([]uint64, 0, len(l.req.GetPrompt())/size), 0, l.req.GetPrompt(), size)}
	s.overlap = l.kv.index.Match(s.names)
	l.sizes = append(l.sizes, s)
	return &l.sizes[len(l.sizes)-1]
}

// cached returns how many tokens of the request a worker is expected to find in its cache. The last is always read. A nil
// lookup expects none.
func (l *lookup) cached(w *fleet.Worker, info *llmv1.WorkerInfo) int {
	if l == nil {
		return 0
	}
	at, known := l.kv.place(w)
	s := l.in(int(info.GetKvBlockSize()))
	if s == nil || !known {
		return 0
	}
	return max(0, min(s.overlap[at.number]*s.size, len(l.req.GetPrompt())-1))
}

// sent notes that a worker gets the request.
func (l *lookup) sent(w *fleet.Worker, info *llmv1.WorkerInfo, now time.Time) {
	at, known := l.kv.place(w)
	s := l.in(int(info.GetKvBlockSize()))
	if s == nil || !known {
		return
	}
	l.kv.forecast(at).Sent(at.number, s.names, now)
}

func (k *KV) forecast(at place) *kvindex.Forecast {
	if at.tells {
		return k.awaited
	}
	return k.guessed
}

func (k *KV) place(w *fleet.Worker) (at place, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, known = k.places[w]
	return at, known
}
