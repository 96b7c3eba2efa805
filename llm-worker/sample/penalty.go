package sample

import (
	"math"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// A penalty makes tokens that have occurred less likely.
type penalty struct {
	repetition float32
	frequency  float32
	presence   float32
	// seen holds the number of times that a token occurs in the answer; 0 for a token that occurs
	// only in the prompt. It grows to at most one entry per token id.
	seen map[uint32]uint32
}

// newPenalty returns nil if p asks for no penalty, so that such requests pay nothing.
func newPenalty(p *llmv1.Sampling, prompt []uint32, vocab int) *penalty {
	pen := &penalty{repetition: 1, frequency: p.GetFrequencyPenalty(), presence: p.GetPresencePenalty()}
	if p != nil && p.RepetitionPenalty != nil {
		pen.repetition = *p.RepetitionPenalty
	}
	if pen.repetition == 1 && pen.frequency == 0 && pen.presence == 0 {
		return nil
	}
	pen.seen = make(map[uint32]uint32)
	if pen.repetition != 1 {
		for _, id := range prompt {
			if int64(id) < int64(vocab) {
				pen.seen[id] = 0
			}
		}
	}
	return pen
}

// apply changes the logits of all tokens in seen. A token's logit depends on that token alone, so
// map order does not matter.
func (p *penalty) apply(logits []float32) {
	for id, times := range p.seen {
		if int64(id) >= int64(len(logits)) {
			continue
		}
		v := logits[id]
		if v > 0 {
			v /= p.repetition
		} else {
			v *= p.repetition
		}
		if times > 0 {
			v -= p.frequency*float32(times) + p.presence
		}
		// A tiny repetition penalty is allowed and may overflow; that is not the model's fault.
		logits[id] = min(v, math.MaxFloat32)
	}
}

func (p *penalty) count(token uint32) { p.seen[token]++ }
