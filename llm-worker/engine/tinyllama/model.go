// Package tinyllama runs any small LlamaForCausalLM in Go alone, many sequences at once, and gives each sequence exactly
// the tokens that it would get by itself.
//
// Load reads weights, New makes a batch.Model of them. Exactly means bit by bit: every number of a sequence's forward pass
// comes from the same operations in the same order whatever else is in the batch, wherever the chunks of its prompt end,
// whether a token is read or was generated here, and however many threads there are, since rows of a batch meet only in the cache, never in a sum. Greedy answers are
// those of llama.cpp for the same weights (testdata/greedy.json). Another kind of processor may round differently.
//
// Memory is bounded by Options: the KV cache by KVTokens, and everything else by a few rows for each thread. A step does
// one token for each sequence that answers and PrefillChunk tokens of prompts, so its length is bounded, too.
//
// The KV cache of a sequence that has left is kept, as long as nobody needs the memory, for those that begin like it: they
// read only what is new, and get the same tokens.
//
// Deliberately absent: quantized weights, GPUs, beams, and sharing of the KV cache with a sequence that still reads its prompt.
package tinyllama

import (
	"fmt"
	"runtime"
	"sync"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/kv"
	"github.com/whence-dev/whence/llm-worker/guide"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Options bound what a Model uses. The zero value works.
type Options struct {
	// ContextLength is how many tokens a prompt and its answer may have together; at most what the model allows, and that
	// if 0.
	ContextLength int
	// KVTokens is the size of the KV cache in token positions, rounded up to whole blocks of 64. If 0 it is 65,536, or the
	// context length if that is more. Memory is taken as sequences grow, and then kept.
	KVTokens int
	// PrefillChunk is how many tokens of prompts a step reads at most, all sequences together; 32 if 0, which is fast and
	// for the embedded model one to three milliseconds. A larger chunk only makes whoever waits for the step wait longer.
	PrefillChunk int
	// Vocabulary is what guides are made of; without one, requests with a guide are refused.
	Vocabulary *guide.Vocabulary
	// Threads is how many goroutines share a step that is worth it; if 0, half of GOMAXPROCS, which leaves the other half
	// to those who carry the tokens away.
	Threads int
	// NoPrefixCache has each sequence read all of its prompt. Else what others have asked shortens the time to the first
	// token of those who ask the same, and usage says so.
	NoPrefixCache bool
}

func (o Options) withDefaults(c *config) Options {
	if o.ContextLength <= 0 || o.ContextLength > c.context {
		o.ContextLength = c.context
	}
	if o.KVTokens <= 0 {
		o.KVTokens = max(64<<10, o.ContextLength)
	}
	if o.PrefillChunk <= 0 {
		o.PrefillChunk = 32
	}
	if o.Threads <= 0 {
		o.Threads = max(1, runtime.GOMAXPROCS(0)/2)
	}
	return o
}

// A Model is a batch.Model. Check may be called from any goroutine, everything else from one at a time.
type Model struct {
	// Static.
	weights *Weights
	options Options

	// Owned by whoever calls Step.
	sequences map[uint64]*sequence
	pool      *kv.Pool
	lanes     []*lane
	jobs      []job          // of the step under way
	group     sync.WaitGroup // of its lanes
}

var _ batch.Model = (*Model)(nil)

// New returns a Model without sequences.
func New(w *Weights, opts Options) *Model {
	opts = opts.withDefaults(w.config)
	m := &Model{
		weights:   w,
		options:   opts,
		sequences: map[uint64]*sequence{},
		pool:      kv.New(w.config.layout(), kv.Blocks(opts.KVTokens)),
	}
	for range opts.Threads {
		m.lanes = append(m.lanes, newLane(w, opts.ContextLength))
	}
	return m
}

// ContextLength returns how many tokens a prompt and its answer may have together.
func (m *Model) ContextLength() int { return m.options.ContextLength }

// VocabSize returns the number that all token ids are below.
func (m *Model) VocabSize() int { return m.weights.config.vocab }

// EOS returns the model's end-of-sequence tokens, sorted. The caller must not change them.
func (m *Model) EOS() []uint32 { return m.weights.eos }

// KV reports reserved and total positions.
func (m *Model) KV() (used, total uint64) {
	return uint64(m.pool.Reserved()) * kv.BlockTokens, uint64(m.pool.Total()) * kv.BlockTokens
}

// Cached reports how many tokens of a sequence's prompt others had left for it.
func (m *Model) Cached(id uint64) int {
	if s := m.sequences[id]; s != nil {
		return s.memory.Cached
	}
	return 0
}

// Check refuses a request that could never join.
func (m *Model) Check(req *workerv1.TokenRequest) error {
	prompt := req.GetPrompt()
	switch {
	case len(prompt) == 0:
		return streamerr.InvalidParam("prompt", "the prompt has no tokens")
	case int64(req.GetGenerated()) >= int64(len(prompt)):
		return streamerr.InvalidParam("generated", "generated is %d, but the prompt has %d tokens, and at least one of them is no answer", req.GetGenerated(), len(prompt))
	case len(prompt) >= m.options.ContextLength:
		return streamerr.InvalidParam("prompt", "the prompt has %d tokens; the context of %d must hold it and at least one more",
			len(prompt), m.options.ContextLength)
	}
	for i, id := range prompt {
		if int64(id) >= int64(m.VocabSize()) {
			return streamerr.InvalidParam(fmt.Sprintf("prompt[%d]", i), "token id %d is not below %d, the size of the vocabulary", id, m.VocabSize())
		}
	}
	if err := sample.Validate(req.GetSampling(), m.VocabSize()); err != nil {
		return err
	}
	if _, err := m.guide(req); err != nil {
		return err
	}
	need := m.positions(req)
	if need <= len(prompt) { // max_tokens, as the context leaves room for one
		return streamerr.InvalidParam("generated", "generated is %d and max_tokens %d: there is nothing left to generate", req.GetGenerated(), req.GetSampling().GetMaxTokens())
	}
	if kv.Blocks(need) > m.pool.Total() {
		param := "prompt"
		if kv.Blocks(len(prompt)+1) <= m.pool.Total() {
			param = "sampling.max_tokens"
		}
		return streamerr.InvalidParam(param, "prompt and answer can take %d tokens of KV cache, but there are %d in all",
			need, m.pool.Total()*kv.BlockTokens)
	}
	return nil
}

// positions returns how many positions a valid request can come to fill: the same wherever its answer was begun.
func (m *Model) positions(req *workerv1.TokenRequest) int {
	asked, _ := split(req)
	room := m.options.ContextLength - len(asked)
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		room = int(min(int64(room), int64(*s.MaxTokens)))
	}
	return len(asked) + room
}

// split returns what was asked, and what has been answered so far.
func split(req *workerv1.TokenRequest) (asked, answer []uint32) {
	at := len(req.GetPrompt()) - int(req.GetGenerated())
	return req.GetPrompt()[:at], req.GetPrompt()[at:]
}

// Join adds a sequence, or returns what Check says, or batch.ErrFull.
func (m *Model) Join(id uint64, req *workerv1.TokenRequest) error {
	if err := m.Check(req); err != nil {
		return err
	}
	if m.sequences[id] != nil {
		return fmt.Errorf("tinyllama: sequence %d has joined already", id)
	}
	matcher, err := m.guide(req)
	if err != nil {
		return err
	}
	need := m.positions(req)
	known := req.GetPrompt()
	if m.options.NoPrefixCache {
		known = nil
	}
	memory, ok := m.pool.Join(need, known)
	if !ok {
		return batch.ErrFull
	}
	asked, answer := split(req)
	m.sequences[id] = &sequence{
		prompt: req.GetPrompt(),
		memory: memory,
		read:   memory.Cached,
		answer: make([]uint32, 0, kv.BlockTokens),
		sampler: sample.New(req.GetSampling(), sample.Sequence{
			Prompt: asked,
			Answer: answer,
			EOS:    m.EOS(),
			Vocab:  m.VocabSize(),
			Room:   need - len(asked),
			Guide:  matcher,
		}),
	}
	return nil
}

// guide returns what the answer is kept to, behind what has been answered so far; nil is nothing.
func (m *Model) guide(req *workerv1.TokenRequest) (*guide.Matcher, error) {
	if req.GetSampling().GetGuide() == nil {
		return nil, nil
	}
	g, err := guide.New(m.options.Vocabulary, req.GetSampling().GetGuide())
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

// Leave forgets a sequence; one that is not there is left alone.
func (m *Model) Leave(id uint64) {
	if s := m.sequences[id]; s != nil {
		delete(m.sequences, id)
		var read []uint32 // to be remembered
		if !m.options.NoPrefixCache && !s.embeds() {
			read = s.known()[:s.read]
		}
		m.pool.Leave(s.memory, read)
	}
}
