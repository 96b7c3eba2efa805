// Package tinyllama runs any small Llama, Mistral, Qwen2, Qwen3 or Phi-3 in pure Go, many sequences
// at once, and gives each sequence exactly the tokens that it would get alone.
//
// Load reads weights, New makes a batch.Model of them. Exactly means bit by bit: every number of a
// sequence's forward pass comes from the same operations in the same order, whatever else is in the
// batch, wherever the chunks of its prompt end, whether a token was read or generated here, and for
// any number of threads, because rows of a batch never meet in a sum. Greedy answers are those of
// llama.cpp for the same weights (testdata/greedy.json). Another kind of processor may round
// differently.
//
// Matrices are float32, bfloat16 or int8 in memory (package matrix). A step takes all sequences
// through a layer together, so that the weights come from memory once, and splits each part of the
// layer over threads (workPool), so that one sequence uses all of them.
//
// Options bound the memory: the KV cache by KVTokens, and everything else by a few rows. A step
// generates one token per answering sequence and reads a bounded number of tokens of prompts, so its
// length is bounded, too (stepPace).
//
// The KV cache is a pool of blocks. A sequence takes blocks as it grows, and shares those that it has
// filled: sequences with the same prefix read only their new tokens, and get the same answer. Blocks
// that no sequence holds stay cached until the memory is needed. If there are no more blocks, the
// sequence that joined last is paused: it gives its blocks back, reads its tokens again later, and
// continues with the same answer. So the oldest sequence always advances.
//
// Deliberately absent: GPUs and beams.
package tinyllama

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/guide"
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Options bound the resources of a Model. The zero value works.
type Options struct {
	// ContextLength is the maximum number of tokens of a prompt and its answer together. It is at
	// most the model's limit; 0 means the model's limit.
	ContextLength int
	// KVTokens is the size of the KV cache in token positions, rounded up to whole blocks of 64. 0
	// means 65,536, or the context length if that is more. Memory is allocated as sequences grow, and
	// then kept.
	KVTokens int
	// PrefillChunk is the maximum number of prompt tokens per step, over all sequences. 0 lets the
	// model choose: many, as long as the step stays short for the streams that answer in it.
	PrefillChunk int
	// Vocabulary is the source of guides; without one, requests with a guide are refused.
	Vocabulary *guide.Vocabulary
	// Threads is the number of goroutines that share a step that is large enough. 0 means GOMAXPROCS,
	// or half of it for a model of less than 100 million weights: the steps of a small model are so
	// short that delivering its tokens takes as much time.
	Threads int
	// NoPrefixCache makes each sequence read all of its prompt. Otherwise a prompt that another
	// tenant has sent shortens the time to first token of the same prompt, and usage shows it.
	NoPrefixCache bool
	// Held gets the names of the blocks in the prefix cache; nil if no caller subscribes to them.
	Held *kvevents.Hub
}

func (o Options) withDefaults(c *modelConfig) Options {
	if o.ContextLength <= 0 || o.ContextLength > c.Context {
		o.ContextLength = c.Context
	}
	if o.KVTokens <= 0 {
		o.KVTokens = max(64<<10, o.ContextLength)
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
		if c.Multiplications() < 100e6 {
			o.Threads = max(1, o.Threads/2)
		}
	}
	return o
}

// A Model is a batch.Preparer, a batch.Pauser and a batch.Interrupter. Any goroutine may call Check,
// Prepare, Abandon and CachedTokens; all other methods are for one goroutine at a time.
type Model struct {
	// Static.
	weights *Weights
	options Options
	guides  *guide.Cache

	cached    atomic.Uint64 // token positions in the prefix cache
	abandoned abandonedSet

	// Owned by the caller of Step.
	sequences map[uint64]*sequence
	paused    []*sequence // have no memory; the oldest first, and all of them younger than the others
	joined    uint64      // number of sequences that have joined
	part      []uint32    // scratch: the tokens of a block
	pool      *kvPool
	workers   *workPool
	lane      *lane
	jobs      []job // of the current step
	pace      stepPace
}

var (
	_ batch.Preparer    = (*Model)(nil)
	_ batch.Pauser      = (*Model)(nil)
	_ batch.Interrupter = (*Model)(nil)
)

// New returns a Model without sequences.
func New(w *Weights, opts Options) *Model {
	opts = opts.withDefaults(w.config)
	m := &Model{
		weights:   w,
		options:   opts,
		guides:    guide.NewCache(opts.Vocabulary, func(value any) error { return batch.Panicked(value) }),
		sequences: map[uint64]*sequence{},
		pool:      newKVPool(w.config.Layout(), blockCount(opts.KVTokens)),
		workers:   newWorkPool(opts.Threads),
	}
	m.lane = newLane(w, m.workers, &m.abandoned)
	return m
}

// ContextLength returns the maximum number of tokens of a prompt and its answer together.
func (m *Model) ContextLength() int { return m.options.ContextLength }

// VocabSize returns the size of the vocabulary; all token ids are below it.
func (m *Model) VocabSize() int { return m.weights.config.Vocab }

// EOS returns the model's end-of-sequence tokens, sorted. The caller must not change them.
func (m *Model) EOS() []uint32 { return m.weights.eos }

// KV returns the positions of the blocks that sequences hold or need for their known tokens, and of
// all blocks.
func (m *Model) KV() (used, total uint64) {
	return uint64(m.pool.Used()) * BlockTokens, uint64(m.pool.Total()) * BlockTokens
}

// CachedTokens returns the number of positions that later prompts may find, including those of
// running sequences.
func (m *Model) CachedTokens() uint64 { return m.cached.Load() }

// Paused reports whether a sequence waits for memory.
func (m *Model) Paused(id uint64) bool {
	s := m.sequences[id]
	return s != nil && s.memory == nil
}

// Cached returns the number of tokens of a sequence's prompt that were found in the prefix cache.
func (m *Model) Cached(id uint64) int {
	if s := m.sequences[id]; s != nil {
		return s.cached
	}
	return 0
}

// Check refuses a request that could never join.
func (m *Model) Check(req *workerv1.TokenRequest) error {
	_, err := m.Prepare(context.Background(), req)
	return err
}

// check is Check without the guide.
func (m *Model) check(req *workerv1.TokenRequest) error {
	prompt := req.GetPrompt()
	switch {
	case len(prompt) == 0:
		return streamerr.InvalidParam("prompt", "the prompt has no tokens")
	case int64(req.GetGenerated()) >= int64(len(prompt)):
		return streamerr.InvalidParam("generated", "generated is %d, but must be less than the %d tokens of the prompt", req.GetGenerated(), len(prompt))
	case len(prompt) >= m.longest():
		return streamerr.TooLong("prompt", len(prompt), m.longest())
	}
	for i, id := range prompt {
		if int64(id) >= int64(m.VocabSize()) {
			return streamerr.InvalidParam(fmt.Sprintf("prompt[%d]", i), "token id %d is not below %d, the size of the vocabulary", id, m.VocabSize())
		}
	}
	if err := sample.Validate(req.GetSampling(), m.VocabSize()); err != nil {
		return err
	}
	if err := sample.CheckScores(req.GetSampling(), m.VocabSize(), len(req.GetPrompt())); err != nil {
		return err
	}
	need := m.positions(req)
	if need <= len(prompt) { // max_tokens is 0, because the context leaves room for one token
		return streamerr.InvalidParam("generated", "generated is %d and max_tokens %d: there is nothing left to generate", req.GetGenerated(), req.GetSampling().GetMaxTokens())
	}
	return nil
}

// longest returns the maximum number of positions of one sequence: what the context and the KV cache
// both hold.
func (m *Model) longest() int { return min(m.options.ContextLength, m.pool.Total()*BlockTokens) }

// positions returns the maximum number of positions that a valid request may fill: the same on
// every worker with as much KV cache, wherever its answer began.
func (m *Model) positions(req *workerv1.TokenRequest) int {
	asked, _ := split(req)
	room := m.longest() - len(asked)
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		room = int(min(int64(room), int64(*s.MaxTokens)))
	}
	return len(asked) + room
}

// split returns the prompt and the answer so far.
func split(req *workerv1.TokenRequest) (asked, answer []uint32) {
	at := len(req.GetPrompt()) - int(req.GetGenerated())
	return req.GetPrompt()[:at], req.GetPrompt()[at:]
}

// Join adds a sequence. It returns the error of Check, or batch.ErrFull.
func (m *Model) Join(id uint64, req *workerv1.TokenRequest) error {
	join, err := m.Prepare(context.Background(), req)
	if err != nil {
		return err
	}
	return join(id)
}

// Prepare is Check. It also compiles the guide of the request, unless another request has done so,
// and follows the answer so far.
func (m *Model) Prepare(ctx context.Context, req *workerv1.TokenRequest) (join func(id uint64) error, err error) {
	if err := m.check(req); err != nil {
		return nil, err
	}
	matcher, err := m.guide(ctx, req)
	if err != nil {
		return nil, err
	}
	return func(id uint64) error { return m.join(id, req, matcher) }, nil
}

// join adds a sequence of a valid request.
func (m *Model) join(id uint64, req *workerv1.TokenRequest, matcher *guide.Matcher) error {
	if m.sequences[id] != nil {
		return fmt.Errorf("tinyllama: sequence %d has joined already", id)
	}
	asked, answer := split(req)
	return m.admit(id, &sequence{
		prompt: req.GetPrompt(),
		scored: m.scoresOf(req),
		answer: make([]uint32, 0, BlockTokens),
		sampler: sample.New(req.GetSampling(), sample.Sequence{
			Prompt: asked,
			Answer: answer,
			EOS:    m.EOS(),
			Vocab:  m.VocabSize(),
			Room:   m.positions(req) - len(asked),
			Guide:  matcher,
		}),
	})
}

// admit gives a sequence its first memory, or returns batch.ErrFull.
func (m *Model) admit(id uint64, s *sequence) error {
	defer m.report()
	if len(m.paused) > 0 || !m.enter(s) {
		return batch.ErrFull
	}
	m.joined++
	s.order, s.cached = m.joined, s.read
	m.sequences[id] = s
	return nil
}

// guide returns the guide of the rest of the answer, or nil for none.
func (m *Model) guide(ctx context.Context, req *workerv1.TokenRequest) (*guide.Matcher, error) {
	if req.GetSampling().GetGuide() == nil {
		return nil, nil
	}
	g, err := m.guides.Guide(ctx, req.GetSampling().GetGuide())
	if err != nil {
		return nil, err
	}
	matcher := g.Matcher()
	_, answer := split(req)
	for _, id := range answer {
		if err := matcher.Advance(id); err != nil {
			return nil, streamerr.InvalidParam("generated", "the answer so far does not follow its guide: %v", err)
		}
	}
	return matcher, nil
}

// Close waits for the guides that are being compiled. Later requests with a guide end with DRAINING.
func (m *Model) Close() { m.guides.Close() }

// Leave forgets a sequence, and lets paused ones resume. It does nothing if the id is unknown.
func (m *Model) Leave(id uint64) {
	s := m.sequences[id]
	if s == nil {
		return
	}
	defer m.report()
	delete(m.sequences, id)
	if s.memory == nil {
		m.paused = slices.DeleteFunc(m.paused, func(p *sequence) bool { return p == s })
	} else {
		m.release(s)
	}
	m.resume()
}
