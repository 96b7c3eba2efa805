// Package sim is an engine without a model: it takes as long as a GPU, keeps a KV cache, and
// answers with random words.
//
// It is a test and demonstration engine for routing, migration and load. Steps use continuous
// batching. A prompt takes time for its tokens that are not cached, in chunks; an answer takes one
// step per token. The KV cache is finite, consists of blocks, finds known prefixes, and publishes
// its content. Streams fail or stall if the options say so.
//
// A token depends only on prompt, seed and position, so a moved stream equals an undisturbed one.
// There are no probabilities: max_tokens, min_tokens, ignore_eos, stop_token_ids, seed and a
// temperature of 0 have their usual meaning; all other fields of Sampling are checked and have no
// effect.
package sim

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/guide"
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/kvblock"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Model is a batch.Model. Any goroutine may call Check, Cached and Prefill; all other methods are
// for one goroutine at a time.
type Model struct {
	// Static.
	vocabulary *Vocabulary
	options    Options
	context    int
	held       *kvevents.Hub
	guides     *guide.Cache // nil for a model without guided answers

	// Owned by the caller of Step.
	sequences map[uint64]*sequence
	joined    uint64
	cache     *cache
	tickets   tickets

	cached, prefill atomic.Int64 // tokens
}

var _ batch.Preparer = (*Model)(nil)

// New returns a Model without sequences, which reports the content of its cache to held. The
// options must be valid.
func New(v *Vocabulary, opts Options, held *kvevents.Hub) *Model {
	opts = withDefaults(opts)
	m := &Model{vocabulary: v, options: opts, context: opts.ContextLength, held: held, sequences: make(map[uint64]*sequence)}
	if m.context == 0 {
		m.context = v.ContextLength
	}
	m.cache = newCache(m.blocksFor(opts.KVTokens))
	if v.Guides != nil {
		m.guides = guide.NewCache(v.Guides, func(value any) error { return batch.Panicked(value) })
	}
	return m
}

// Close waits for the guides that are being compiled. Later requests with a guide end with DRAINING.
func (m *Model) Close() {
	if m.guides != nil {
		m.guides.Close()
	}
}

// ContextLength returns the maximum number of tokens of a prompt and its answer together.
func (m *Model) ContextLength() int { return m.context }

// Block returns the number of tokens per block.
func (m *Model) Block() int { return m.options.Block }

// Cached returns the number of positions that cache prefixes.
func (m *Model) Cached() uint64 { return uint64(m.cached.Load()) }

// Prefill returns the number of prompt tokens still to be read.
func (m *Model) Prefill() uint64 { return uint64(m.prefill.Load()) }

// KV reports reserved and total positions.
func (m *Model) KV() (used, total uint64) {
	return uint64(m.cache.used+m.cache.reserved) * uint64(m.options.Block), uint64(m.cache.total) * uint64(m.options.Block)
}

func (m *Model) blocksFor(positions int) int {
	return (positions + m.options.Block - 1) / m.options.Block
}

// longest returns the maximum number of positions of one sequence: what the context and the KV cache
// both hold.
func (m *Model) longest() int { return min(m.context, m.cache.total*m.options.Block) }

// Check refuses a request that could never join.
func (m *Model) Check(req *workerv1.TokenRequest) error {
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
		if int64(id) >= int64(m.vocabulary.Size) {
			return streamerr.InvalidParam(fmt.Sprintf("prompt[%d]", i), "token id %d is not below %d, the size of the vocabulary", id, m.vocabulary.Size)
		}
	}
	if err := sample.Validate(req.GetSampling(), m.vocabulary.Size); err != nil {
		return err
	}
	if asked, room := m.room(req); asked+room <= len(prompt) {
		return streamerr.InvalidParam("generated", "generated is %d and max_tokens %d: there is nothing left to generate", req.GetGenerated(), req.GetSampling().GetMaxTokens())
	}
	return nil
}

// room returns the number of prompt tokens of a valid request, and the maximum number of tokens of
// its whole answer: max_tokens, or what the context and the KV cache leave.
func (m *Model) room(req *workerv1.TokenRequest) (asked, room int) {
	asked = len(req.GetPrompt()) - int(req.GetGenerated())
	room = m.longest() - asked
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		room = int(min(int64(room), int64(*s.MaxTokens)))
	}
	return asked, room
}

// Join adds a sequence. It returns the error of Check, or batch.ErrFull.
func (m *Model) Join(id uint64, req *workerv1.TokenRequest) error {
	join, err := m.Prepare(context.Background(), req)
	if err != nil {
		return err
	}
	return join(id)
}

// Prepare is Check. It also compiles the guide of the request, and follows the answer so far.
func (m *Model) Prepare(ctx context.Context, req *workerv1.TokenRequest) (join func(id uint64) error, err error) {
	if err := m.Check(req); err != nil {
		return nil, err
	}
	var matcher *guide.Matcher
	if asked := req.GetSampling().GetGuide(); asked != nil && m.guides != nil {
		g, err := m.guides.Guide(ctx, asked)
		if err != nil {
			return nil, err
		}
		matcher = g.Matcher()
		for _, token := range req.GetPrompt()[len(req.GetPrompt())-int(req.GetGenerated()):] {
			if err := matcher.Advance(token); err != nil {
				return nil, streamerr.InvalidParam("generated", "the answer so far does not follow its guide: %v", err)
			}
		}
	}
	return func(id uint64) error { return m.join(id, req, matcher) }, nil
}

// join adds the sequence of a valid request.
func (m *Model) join(id uint64, req *workerv1.TokenRequest, matcher *guide.Matcher) error {
	if m.sequences[id] != nil {
		return fmt.Errorf("sim: sequence %d has joined already", id)
	}
	prompt := req.GetPrompt()
	names := kvblock.Chain(nil, 0, prompt, m.options.Block)
	// The last token is always read, because the next token depends on it.
	reusable := (len(prompt) - 1) / m.options.Block
	blocks := m.cache.find(names[:reusable])
	asked, room := m.room(req)
	reserved := m.blocksFor(asked+room) - len(blocks)
	if !m.cache.reserve(blocks, reserved) {
		return batch.ErrFull
	}
	m.joined++
	s := &sequence{
		prompt: prompt, names: names, blocks: blocks, reserved: reserved, read: len(blocks) * m.options.Block,
		answer: newAnswer(m.vocabulary, req, prompt[:asked], room, m.options.Answer, matcher), fault: m.options.fault(m.joined),
	}
	s.cached = uint32(s.read)
	switch t := req.GetKvTransfer(); {
	case t.GetAsk():
		s.handsOver = true
	case len(t.GetParameters()) > 0 && m.tickets.redeem(t.GetParameters(), prompt):
		s.fetch(&m.options)
	}
	m.sequences[id] = s
	m.prefill.Add(int64(len(prompt) - s.read))
	return nil
}

// Leave forgets a sequence. It does nothing if the id is unknown.
func (m *Model) Leave(id uint64) {
	s := m.sequences[id]
	if s == nil {
		return
	}
	delete(m.sequences, id)
	m.prefill.Add(-int64(max(0, len(s.prompt)-s.read)))
	m.cache.release(s.blocks, s.reserved, s.opened)
}

// Step reads up to Chunk prompt tokens, those of the first sequences in ids first, and generates
// one token for each sequence whose prompt is read. It takes the simulated time.
func (m *Model) Step(ids []uint64, out []batch.Output) ([]batch.Output, error) {
	chunk, answering := m.options.Chunk, 0
	var waits time.Duration // until the first prompt in transfer arrives
	for _, id := range ids {
		s := m.sequences[id]
		if s == nil {
			return out, fmt.Errorf("sim: sequence %d has not joined", id)
		}
		if left := time.Until(s.arrives); left > 0 {
			if waits == 0 || left < waits {
				waits = left
			}
			continue
		}
		if n := s.fetched - s.read; n > 0 { // the transfer has arrived
			s.advance(m.cache, m.options.Block, n)
			m.prefill.Add(-int64(n))
		}
		if rest := len(s.prompt) - s.read; rest > 0 {
			n := min(rest, chunk)
			chunk -= n
			s.advance(m.cache, m.options.Block, n)
			m.prefill.Add(-int64(n))
			if n < rest {
				continue
			}
		} else if silent, err := s.fault.strike(s.made, &m.options); err != nil {
			out = append(out, batch.Output{ID: id, Err: err})
			continue
		} else if silent {
			continue
		} else {
			answering++
			s.advance(m.cache, m.options.Block, 1)
		}
		if s.handsOver {
			out = append(out, batch.Output{ID: id, Handover: newTicket(s.prompt), Hidden: true, Finish: llmv1.Finish_FINISH_LENGTH, Cached: s.cached})
			continue
		}
		o := s.answer.choose(id)
		o.Cached = s.cached
		s.last = o.Token
		s.made++
		out = append(out, o)
	}
	if waits > 0 && answering == 0 && chunk == m.options.Chunk {
		time.Sleep(min(waits, m.options.scaled(m.options.Step))) // all sequences wait for transfers
		return out, nil
	}
	took := m.options.Step + time.Duration(answering)*m.options.Stream + time.Duration(m.options.Chunk-chunk)*m.options.PrefillToken
	time.Sleep(m.options.scaled(took))
	m.cached.Store(int64(len(m.cache.blocks) * m.options.Block))
	m.held.Publish(m.cache.removed, m.cache.stored)
	m.cache.removed, m.cache.stored = m.cache.removed[:0], m.cache.stored[:0]
	return out, nil
}
