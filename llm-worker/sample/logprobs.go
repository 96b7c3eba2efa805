package sample

import (
	"math"
	"slices"

	"github.com/viterin/vek/vek32"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// MaxLogprobs is how many of the likeliest tokens a request may ask for in each place.
const MaxLogprobs = 20

// impossible is the log-probability of what can never be: no JSON has an infinity, and this is what OpenAI says for it.
const impossible = -9999

// Logprobs are natural logarithms of probabilities, by the model's own logits. They are taken before anything changes the
// logits, as vLLM and OpenAI do: what is asked of a Sampler makes no token likelier than the model finds it.
type Logprobs struct {
	Token float32   // of the token that was chosen
	IDs   []uint32  // the likeliest in its place, likeliest first, of equal ones the lowest id
	Top   []float32 // theirs
}

// A logprobFinder finds the Logprobs of a sequence's tokens.
type logprobFinder struct {
	raw   []float32 // the logits as the model made them
	best  int       // of raw
	found Logprobs  // has the logits of the likeliest until finish
}

// newLikely returns nil if p asks for nothing, so that the usual request pays nothing.
func newLikely(p *llmv1.Sampling, vocab int) *logprobFinder {
	if p == nil || p.Logprobs == nil {
		return nil
	}
	n := min(saturated(*p.Logprobs), vocab)
	return &logprobFinder{raw: make([]float32, 0, vocab), found: Logprobs{IDs: make([]uint32, 0, n), Top: make([]float32, 0, n)}}
}

// look keeps what finish will need; a copy, because Next writes over the logits. ok is false if they are no distribution.
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

// finish returns what was found, which is good until the next look.
func (l *logprobFinder) finish(token uint32) *Logprobs {
	largest := l.raw[l.best]
	norm := largest + float32(math.Log(l.mass(largest)))
	for i := range l.found.Top {
		l.found.Top[i] = bounded(l.found.Top[i] - norm)
	}
	l.found.Token = bounded(l.raw[token] - norm)
	return &l.found
}

// mass sums up exp(logit - largest), some logits at a time: float32 alone would lose what many unlikely tokens weigh together.
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

// bounded makes -Inf, and what no distribution has, a number.
func bounded(v float32) float32 {
	if !(v >= impossible) {
		return impossible
	}
	return min(v, 0)
}
