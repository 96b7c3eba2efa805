package tinyllama

import (
	"sync"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/sample"
)

// scores are the log-probabilities of a prompt's tokens.
type scores struct {
	scorer *sample.Scorer
	each   int // top tokens for each
	found  *workerv1.PromptLogprobs

	mu  sync.Mutex // several workers score tokens at a time
	err error
}

func (s *scores) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// scoresOf returns the scores that a request asks for, or nil.
func (m *Model) scoresOf(req *workerv1.TokenRequest) *scores {
	scorer := sample.NewScorer(req.GetSampling(), m.VocabSize())
	if scorer == nil || req.GetGenerated() > 0 {
		return nil
	}
	n, each := len(req.GetPrompt())-1, m.alternatives(req)
	return &scores{scorer: scorer, each: each, found: &workerv1.PromptLogprobs{
		Logprobs: make([]float32, n), TopIds: make([]uint32, n*each), TopLogprobs: make([]float32, n*each),
	}}
}

// alternatives returns the number of top tokens that a request asks for in each place.
func (m *Model) alternatives(req *workerv1.TokenRequest) int {
	return min(int(req.GetSampling().GetLogprobs()), m.VocabSize())
}

// scores reports whether the tokens after a position of s get a log-probability.
func (s *sequence) scores(position int) bool {
	return s.scored != nil && position+1 < len(s.prompt)
}

// score gives the token after a position its log-probability. A panic becomes the error of s.
func (s *scores) score(position int, token uint32, logits []float32) {
	defer func() {
		if v := recover(); v != nil {
			s.fail(batch.Panicked(v))
		}
	}()
	if err := s.scorer.Score(logits, token, func(p *sample.Logprobs) {
		s.found.Logprobs[position] = p.Token
		copy(s.found.TopIds[position*s.each:], p.IDs)
		copy(s.found.TopLogprobs[position*s.each:], p.Top)
	}); err != nil {
		s.fail(err)
	}
}
