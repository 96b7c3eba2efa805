package sample

import (
	"math"
	"slices"
	"sync"

	"github.com/viterin/vek/vek32"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// MaxLogprobs is the maximum number of top tokens per position that a request may ask for.
const MaxLogprobs = 20

// impossible stands for a log-probability of -Inf, which JSON cannot encode. It is OpenAI's value.
const impossible = -9999

// Logprobs are natural logarithms of probabilities, from the model's raw logits. They are computed
// before the logits are changed, as in vLLM and at OpenAI, so a request's sampling options do not
// affect them.
type Logprobs struct {
	Token float32   // of the chosen token
	IDs   []uint32  // the top tokens, likeliest first; ties by lowest id
	Top   []float32 // log-probabilities of IDs
}

// A logprobFinder finds the Logprobs of a sequence's tokens.
type logprobFinder struct {
	raw   []float32 // copy of the model's raw logits
	best  int       // of raw
	found Logprobs  // holds the top tokens' logits until finish
}

// newLikely returns nil if p asks for no log-probabilities, so that such requests pay nothing.
func newLikely(p *llmv1.Sampling, vocab int) *logprobFinder {
	if p == nil || p.Logprobs == nil {
		return nil
	}
	n := min(saturated(*p.Logprobs), vocab)
	return &logprobFinder{raw: make([]float32, 0, vocab), found: Logprobs{IDs: make([]uint32, 0, n), Top: make([]float32, 0, n)}}
}

// look copies the logits for finish, because Next overwrites them. ok is false if they are not a
// distribution.
func (l *logprobFinder) look(logits []float32) (ok bool) {
	if l.best, ok = argmax(logits); !ok {
		return false
	}
	l.raw = append(l.raw[:0], logits...)
	ids, top := l.found.IDs[:0], l.found.Top[:0]
	for i, v := range logits {
		last := len(top) - 1
		if last+1 == cap(top) {
			if last < 0 || v <= top[last] {
				continue
			}
			ids, top = ids[:last], top[:last]
		}
		at := len(top)
		for at > 0 && v > top[at-1] {
			at--
		}
		ids, top = slices.Insert(ids, at, uint32(i)), slices.Insert(top, at, v)
	}
	l.found.IDs, l.found.Top = ids, top
	return true
}

// finish returns the result for token. It is valid until the next look.
func (l *logprobFinder) finish(token uint32) *Logprobs {
	largest := l.raw[l.best]
	norm := largest + float32(math.Log(l.mass(largest)))
	for i := range l.found.Top {
		l.found.Top[i] = bounded(l.found.Top[i] - norm)
	}
	l.found.Token = bounded(l.raw[token] - norm)
	return &l.found
}

// A Scorer finds the Logprobs of tokens that are not drawn: those of a prompt. Several goroutines may
// use it at a time.
type Scorer struct{ finders sync.Pool }

// NewScorer returns a Scorer, or nil if p asks for no log-probabilities of the prompt.
func NewScorer(p *llmv1.Sampling, vocab int) *Scorer {
	if !p.GetPromptLogprobs() {
		return nil
	}
	return &Scorer{sync.Pool{New: func() any { return newLikely(p, vocab) }}}
}

// Score passes the Logprobs of token in a place with these logits to found, which does not keep them. The
// error is ErrLogits.
func (s *Scorer) Score(logits []float32, token uint32, found func(*Logprobs)) error {
	l := s.finders.Get().(*logprobFinder) //nolint:forcetypeassert // the pool has nothing else
	defer s.finders.Put(l)
	if !l.look(logits) {
		return ErrLogits
	}
	found(l.finish(token))
	return nil
}

// mass sums up exp(logit - largest), in groups: float32 alone would lose the total weight of many
// unlikely tokens.
func (l *logprobFinder) mass(largest float32) (mass float64) {
	var some [512]float32
	for rest := l.raw; len(rest) > 0; {
		n := copy(some[:], rest)
		rest = rest[n:]
		part := some[:n]
		vek32.AddNumber_Inplace(part, -largest)
		vek32.Exp_Inplace(part)
		mass += float64(vek32.Sum(part))
	}
	return mass
}

// bounded limits v to the range from impossible to 0, and replaces NaN by impossible.
func bounded(v float32) float32 {
	if !(v >= impossible) {
		return impossible
	}
	return min(v, 0)
}
