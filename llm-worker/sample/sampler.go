// Package sample chooses the next token of a sequence from the model's logits, as
// whence.llm.v1.Sampling specifies.
//
// One Sampler serves one sequence and gets the logits of each token in turn. The order of
// operations is that of vLLM: repetition, frequency and presence penalties, logit_bias, the mask of
// min_tokens, the mask of a guide (which overrides min_tokens), temperature, min_p, top_k, top_p,
// and a draw from the softmax of the remaining tokens. Temperature 0 takes the largest logit
// instead of drawing; ties go to the lowest id. Each filter sees the distribution that the previous
// one left, rescaled to 1, and none drops the most likely token. An unset field has the default
// that the proto names. Log-probabilities are those of the raw logits.
//
// The same seed, request and logits give the same tokens: the generator is a PCG with a seeding of
// our own, and nothing depends on other sequences, on time, or on map order. The n-th token of an
// answer takes the n-th number of the generator, whatever the logits are, so an answer that one
// Sampler began continues with another without a difference.
package sample

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/viterin/vek/vek32"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/guide"
)

// ErrLogits means that the model's logits are not a distribution: empty, NaN or +Inf. It is never
// the request's fault.
var ErrLogits = errors.New("sample: logits are not finite")

// A Sequence describes the sequence that a Sampler serves.
type Sequence struct {
	Prompt []uint32
	Answer []uint32 // the part of the answer that another worker generated
	EOS    []uint32 // the model's end-of-sequence tokens
	Vocab  int      // logits per token
	Room   int      // maximum tokens of the answer, including Answer; greater than len(Answer)
	// Guide constrains the answer; nil means no constraint. It must have advanced over Answer.
	Guide *guide.Matcher
}

// A Choice is one token of the answer.
type Choice struct {
	Token uint32
	// Hidden marks a token that ended the answer and is not part of it.
	Hidden bool
	// Finish is FINISH_UNSPECIFIED until the answer is finished.
	Finish llmv1.Finish
	// Logprobs are the requested log-probabilities, or nil. They are valid until the next call of
	// Next.
	Logprobs *Logprobs
}

// A Sampler chooses the tokens of one sequence. It is not safe for concurrent use.
type Sampler struct {
	// Static.
	temperature float32
	filter      filter
	bias        []bias
	stops       []uint32 // ids that end the answer, sorted
	minTokens   int
	maxTokens   int

	// The state of the answer.
	tokens  int
	penalty *penalty // nil unless the request asks for a penalty
	guide   *guide.Matcher
	random  *rand.PCG
	likely  *logprobFinder // nil unless the request asks for log-probabilities
}

type bias struct {
	id    uint32
	value float32
}

// New returns a Sampler for one sequence. p may be nil; New does not keep it. Validate must have
// accepted it.
func New(p *llmv1.Sampling, seq Sequence) *Sampler {
	s := &Sampler{
		temperature: 1,
		filter:      newFilter(p),
		minTokens:   saturated(p.GetMinTokens()),
		maxTokens:   seq.Room,
		tokens:      len(seq.Answer),
		penalty:     newPenalty(p, seq.Prompt, seq.Vocab),
		likely:      newLikely(p, seq.Vocab),
		guide:       seq.Guide,
	}
	if p != nil && p.Temperature != nil {
		s.temperature = *p.Temperature
	}
	if s.filter.topK == 1 {
		s.temperature = 0 // the same result with less work
	}
	if p != nil && p.MaxTokens != nil {
		s.maxTokens = min(s.maxTokens, saturated(*p.MaxTokens))
	}
	for id, value := range p.GetLogitBias() {
		s.bias = append(s.bias, bias{id, value})
	}
	s.stops = append(s.stops, p.GetStopTokenIds()...)
	if !p.GetIgnoreEos() {
		s.stops = append(s.stops, seq.EOS...)
	}
	slices.Sort(s.stops)
	s.stops = slices.Compact(s.stops)
	if s.penalty != nil {
		for _, id := range seq.Answer {
			s.penalty.count(id)
		}
	}
	if s.temperature > 0 {
		s.random = newRandom(p)
		for range seq.Answer {
			s.random.Uint64() // two nanoseconds each
		}
	}
	return s
}

// saturated converts a count from the wire, and keeps it positive where int has 32 bits.
func saturated(n uint32) int { return int(min(n, math.MaxInt32)) }

// newRandom returns the generator of a request. Without a seed, each generator is different.
func newRandom(p *llmv1.Sampling) *rand.PCG {
	const stream = 0x9e3779b97f4a7c15 // any constant will do: PCG has 2^64 sequences for each seed
	if p != nil && p.Seed != nil {
		return rand.NewPCG(*p.Seed, stream)
	}
	return rand.NewPCG(rand.Uint64(), rand.Uint64())
}

// Next chooses a token. logits has one number per token id; Next overwrites them, which saves a
// copy. The error is ErrLogits. After a Choice that finishes the answer, the Sampler must not be
// used again.
func (s *Sampler) Next(logits []float32) (Choice, error) {
	if s.likely != nil && !s.likely.look(logits) {
		return Choice{}, ErrLogits
	}
	s.adjust(logits)
	best, ok := argmax(logits)
	if !ok {
		return Choice{}, ErrLogits
	}
	token := best
	if s.temperature > 0 {
		u := uniform(s.random) // even for a single candidate: each token consumes one number
		if !math.IsInf(float64(logits[best]), -1) {
			vek32.AddNumber_Inplace(logits, -logits[best])
			vek32.DivNumber_Inplace(logits, s.temperature)
			vek32.Exp_Inplace(logits)
			logits[best] = 1 // exactly 1, whatever exp returned
			token = s.filter.draw(logits, best, u)
		}
	}
	c, err := s.finish(uint32(token))
	if err == nil && s.likely != nil {
		c.Logprobs = s.likely.finish(c.Token)
	}
	return c, err
}

// adjust applies the operations before the temperature.
func (s *Sampler) adjust(logits []float32) {
	if s.penalty != nil {
		s.penalty.apply(logits)
	}
	for _, b := range s.bias {
		if int64(b.id) < int64(len(logits)) {
			logits[b.id] += b.value
		}
	}
	if s.tokens < s.minTokens && s.guide == nil {
		for _, id := range s.stops {
			if int64(id) < int64(len(logits)) {
				logits[id] = float32(math.Inf(-1))
			}
		}
	}
	if s.guide != nil {
		s.guide.Apply(logits, s.maxTokens-s.tokens, s.stops)
	}
}

// finish counts the token and reports whether it ends the answer. A stop condition is checked
// before the limit, so that an answer that fits exactly is complete, not cut.
func (s *Sampler) finish(token uint32) (Choice, error) {
	early := s.tokens < s.minTokens
	s.tokens++
	if s.penalty != nil {
		s.penalty.count(token)
	}
	c := Choice{Token: token}
	if _, stop := slices.BinarySearch(s.stops, token); stop && (!early || s.guide != nil) {
		c.Hidden, c.Finish = true, llmv1.Finish_FINISH_STOP
		return c, nil
	}
	if s.guide != nil {
		if err := s.guide.Advance(token); err != nil {
			return c, err
		}
		if s.guide.Over() { // even if min_tokens is larger
			c.Finish = llmv1.Finish_FINISH_STOP
			return c, nil
		}
	}
	if s.tokens >= s.maxTokens {
		c.Finish = llmv1.Finish_FINISH_LENGTH
	}
	return c, nil
}

// argmax returns the lowest index of the largest logit; ok is false if there are no logits, or one
// is NaN or +Inf. A token with a logit of -Inf is never chosen.
func argmax(logits []float32) (best int, ok bool) {
	top := float32(math.Inf(-1))
	for i, v := range logits {
		if v <= top { // nearly all, and never NaN
			continue
		}
		if !(v <= math.MaxFloat32) {
			return 0, false
		}
		best, top = i, v
	}
	return best, len(logits) > 0
}
