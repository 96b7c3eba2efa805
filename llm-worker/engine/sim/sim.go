// Package sim is an engine without a model: it takes the time that a GPU would, keeps a KV cache as one would, and answers with
// words drawn by lot.
//
// It is for everything around an engine: routing, migration, load. A step batches all sequences continuously; a prompt takes time
// for the tokens that the cache does not hold, in chunks; an answer takes a step for each token. The KV cache is finite, made of
// blocks, and finds prefixes again; what it holds is published. Streams fail and fall silent if asked to.
//
// A token depends on prompt, seed and position alone, so that a moved stream is the undisturbed one. There are no probabilities:
// max_tokens, min_tokens, ignore_eos, stop_token_ids, seed and a temperature of 0 mean what they always do, and what else Sampling
// says is checked and has nothing to change.
package sim

import (
	"fmt"
	"sync/atomic"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/kvblock"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Model is a batch.Model. Check, Cached and Prefill may be called from any goroutine, everything else from one at a time.
type Model struct {
	// Static.
	vocabulary *Vocabulary
	options    Options
	context    int
	held       *kvevents.Hub

	// Owned by whoever calls Step.
	sequences map[uint64]*sequence
	joined    uint64
	cache     *cache
	tickets   tickets

	cached, prefill atomic.Int64 // tokens
}

var _ batch.Model = (*Model)(nil)

// New returns a Model without sequences, which tells held what its cache holds. The options must be valid.
func New(v *Vocabulary, opts Options, held *kvevents.Hub) *Model {
	opts = withDefaults(opts)
	m := &Model{vocabulary: v, options: opts, context: opts.ContextLength, held: held, sequences: make(map[uint64]*sequence)}
	if m.context == 0 {
		m.context = v.ContextLength
	}
	m.cache = newCache(m.blocksFor(opts.KVTokens))
	return m
}

// ContextLength returns how many tokens a prompt and its answer may have together.
func (m *Model) ContextLength() int { return m.context }

// Block returns how many tokens are in a block.
func (m *Model) Block() int { return m.options.Block }

// Cached returns how many positions hold prefixes.
func (m *Model) Cached() uint64 { return uint64(m.cached.Load()) }

// Prefill returns how many tokens of prompts are still to be read.
func (m *Model) Prefill() uint64 { return uint64(m.prefill.Load()) }

// KV reports reserved and total positions.
func (m *Model) KV() (used, total uint64) {
	return uint64(m.cache.used+m.cache.reserved) * uint64(m.options.Block), uint64(m.cache.total) * uint64(m.options.Block)
}

func (m *Model) blocksFor(positions int) int {
	return (positions + m.options.Block - 1) / m.options.Block
}

// Check refuses a request that could never join.
func (m *Model) Check(req *workerv1.TokenRequest) error {
	prompt := req.GetPrompt()
	switch {
	case len(prompt) == 0:
		return streamerr.InvalidParam("prompt", "the prompt has no tokens")
	case int64(req.GetGenerated()) >= int64(len(prompt)):
		return streamerr.InvalidParam("generated", "generated is %d, but the prompt has %d tokens, and at least one of them is no answer", req.GetGenerated(), len(prompt))
	case len(prompt) >= m.context:
		return streamerr.InvalidParam("prompt", "the prompt has %d tokens; the context of %d must hold it and at least one more", len(prompt), m.context)
	}
	for i, id := range prompt {
		if int64(id) >= int64(m.vocabulary.Size) {
			return streamerr.InvalidParam(fmt.Sprintf("prompt[%d]", i), "token id %d is not below %d, the size of the vocabulary", id, m.vocabulary.Size)
		}
	}
	if err := sample.Validate(req.GetSampling(), m.vocabulary.Size); err != nil {
		return err
	}
	asked, room := m.room(req)
	need := asked + room
	if need <= len(prompt) {
		return streamerr.InvalidParam("generated", "generated is %d and max_tokens %d: there is nothing left to generate", req.GetGenerated(), req.GetSampling().GetMaxTokens())
	}
	if m.blocksFor(need) > m.cache.total {
		return streamerr.InvalidParam("sampling.max_tokens", "prompt and answer can take %d tokens of KV cache, but there are %d in all", need, m.cache.total*m.options.Block)
	}
	return nil
}

// room returns how many tokens of a valid request were asked, and how many the whole answer may have.
func (m *Model) room(req *workerv1.TokenRequest) (asked, room int) {
	asked = len(req.GetPrompt()) - int(req.GetGenerated())
	room = m.context - asked
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		room = int(min(int64(room), int64(*s.MaxTokens)))
	}
	return asked, room
}

// Join adds a sequence, or returns what Check says, or batch.ErrFull.
func (m *Model) Join(id uint64, req *workerv1.TokenRequest) error {
	if err := m.Check(req); err != nil {
		return err
	}
	if m.sequences[id] != nil {
		return fmt.Errorf("sim: sequence %d has joined already", id)
	}
	prompt := req.GetPrompt()
	names := kvblock.Chain(nil, 0, prompt, m.options.Block)
	reusable := (len(prompt) - 1) / m.options.Block // the last token is always read, for what comes after it
	blocks := m.cache.find(names[:reusable])
	asked, room := m.room(req)
	reserved := m.blocksFor(asked+room) - len(blocks)
	if !m.cache.reserve(blocks, reserved) {
		return batch.ErrFull
	}
	m.joined++
	s := &sequence{
		prompt: prompt, names: names, blocks: blocks, reserved: reserved, read: len(blocks) * m.options.Block,
		answer: newAnswer(m.vocabulary, req, prompt[:asked], room, m.options.Answer), fault: m.options.fault(m.joined),
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

// Leave forgets a sequence; one that is not there is left alone.
func (m *Model) Leave(id uint64) {
	s := m.sequences[id]
	if s == nil {
		return
	}
	delete(m.sequences, id)
	m.prefill.Add(-int64(max(0, len(s.prompt)-s.read)))
	m.cache.release(s.blocks, s.reserved, s.opened)
}

// Step reads up to Chunk tokens of prompts, those of the first sequences in ids first, and does one token for each sequence whose
// prompt is read, in the time that this takes.
func (m *Model) Step(ids []uint64, out []batch.Output) ([]batch.Output, error) {
	chunk, answering := m.options.Chunk, 0
	var waits time.Duration // until the first of those comes whose prompt is on its way
	for _, id := range ids {
		s := m.sequences[id]
		if s == nil {
			return out, fmt.Errorf("sim: sequence %d is not there to be continued", id)
		}
		if left := time.Until(s.arrives); left > 0 {
			if waits == 0 || left < waits {
				waits = left
			}
			continue
		}
		if n := s.fetched - s.read; n > 0 { // it is here
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
		time.Sleep(min(waits, m.options.scaled(m.options.Step))) // there is nothing else to do
		return out, nil
	}
	took := m.options.Step + time.Duration(answering)*m.options.Stream + time.Duration(m.options.Chunk-chunk)*m.options.PrefillToken
	time.Sleep(m.options.scaled(took))
	m.cached.Store(int64(len(m.cache.blocks) * m.options.Block))
	m.held.Publish(m.cache.removed, m.cache.stored)
	m.cache.removed, m.cache.stored = m.cache.removed[:0], m.cache.stored[:0]
	return out, nil
}
