package tinyllama

import (
	"errors"
	"fmt"
	"slices"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A sequence is a prompt and the answer to it.
type sequence struct {
	// Static.
	prompt []uint32 // all tokens at the time it joined, including an answer that another worker began
	order  uint64   // of joining

	memory   *blockTable // nil while the sequence is paused
	cached   int         // tokens of prompt that other sequences had read
	resumed  bool        // whether it has been paused
	sampler  *sample.Sampler
	scored   *scores   // of the prompt; nil for most sequences
	sum      []float64 // sum of the last hidden states of a text to embed; nil for other sequences
	summed   int       // positions whose states are in sum
	read     int       // positions with keys and values in memory
	answer   []uint32  // the chosen tokens, once the prompt is read
	finished bool
}

// token returns the token at the next position to read.
func (s *sequence) token(position int) uint32 {
	if position < len(s.prompt) {
		return s.prompt[position]
	}
	return s.answer[position-len(s.prompt)]
}

// length returns the number of known tokens. All of them must be read before the next is chosen.
func (s *sequence) length() int { return len(s.prompt) + len(s.answer) }

// appendTokens appends the tokens of the positions from first to last, exclusive.
func (s *sequence) appendTokens(tokens []uint32, first, last int) []uint32 {
	for position := first; position < last; position++ {
		tokens = append(tokens, s.token(position))
	}
	return tokens
}

// known returns all known tokens.
func (s *sequence) known() []uint32 { return slices.Concat(s.prompt, s.answer) }

// A job is one sequence's part in a step.
type job struct {
	id       uint64
	sequence *sequence
	tokens   int // number to read, from sequence.read on

	// Set by the lane that does the job.
	abandoned bool // the reader has left; the job may be incomplete
	chosen    bool // whether the sequence has read all known tokens and sampled the next
	choice    sample.Choice
	err       error
}

// choose lets the sampler choose the next token. A panic in the sampler becomes the job's error.
func (j *job) choose(logits []float32) {
	defer func() {
		if v := recover(); v != nil {
			j.err = batch.Panicked(v)
		}
	}()
	j.chosen = true // a sampler must not choose twice, even after a panic
	j.choice, j.err = j.sequence.sampler.Next(logits)
}

// failure returns the ending of a sequence whose job failed with err.
func failure(err error) error {
	if e, ok := errors.AsType[*streamerr.Error](err); ok {
		return e
	}
	return &streamerr.Error{
		Reason: streamerr.EngineFailed, Path: streamerr.NewPath("engine"), Message: "no token can be sampled from the model's output", Cause: err,
	}
}

// Step generates one token for each answering sequence, and reads a bounded number of tokens of
// prompts: those of the first sequences in ids first, so that prompts finish one after another
// instead of all late. A sequence for which the KV cache has no room is paused, and gets its tokens
// later.
func (m *Model) Step(ids []uint64, out []batch.Output) ([]batch.Output, error) {
	defer m.report()
	m.abandoned.retain(m.sequences)
	if err := m.schedule(ids); err != nil {
		return out, fmt.Errorf("tinyllama: %w", err)
	}
	begun := time.Now()
	tokens, prompt := m.run()
	if !slices.ContainsFunc(m.jobs, func(j job) bool { return j.abandoned }) {
		m.pace.Record(tokens, prompt, time.Since(begun))
	}
	for i := range m.jobs {
		j := &m.jobs[i]
		s := j.sequence
		if s.scored != nil && s.scored.err != nil {
			j.err = s.scored.err
		}
		if j.err != nil { // the job's positions are not counted, so that no other sequence reuses them
			s.finished = true
			out = append(out, batch.Output{ID: j.id, Err: failure(j.err)})
			continue
		}
		if j.abandoned && !j.chosen { // the job may be incomplete: its positions are not counted
			continue
		}
		s.read += j.tokens
		m.share(s)
		if s.embeds() && s.read == len(s.prompt) {
			s.finished = true
			out = append(out, s.vector(j.id))
			continue
		}
		if j.chosen {
			s.answer, s.finished = append(s.answer, j.choice.Token), j.choice.Finish != llmv1.Finish_FINISH_UNSPECIFIED
			o := batch.Output{
				ID: j.id, Token: j.choice.Token, Hidden: j.choice.Hidden, Finish: j.choice.Finish,
				Cached: uint32(m.Cached(j.id)), Logprobs: (*batch.Logprobs)(j.choice.Logprobs),
			}
			if s.scored != nil && len(s.answer) == 1 {
				o.Prompt = s.scored.found
			}
			out = append(out, o)
		}
	}
	return out, nil
}

// run does the jobs, and returns the number of their tokens, and of those that prompts have. It wakes as
// many workers as the step has work for.
func (m *Model) run() (tokens, prompt int) {
	for i := range m.jobs {
		j := &m.jobs[i]
		tokens += j.tokens
		if j.sequence.read < len(j.sequence.prompt) {
			prompt += j.tokens
		}
	}
	m.workers.Begin(tokens * m.weights.config.Multiplications() / workerMultiplications)
	defer m.workers.End()
	m.lane.do(m.jobs)
	return tokens, prompt
}

// workerMultiplications is the amount of work that justifies waking a worker: about a tenth of a
// millisecond.
const workerMultiplications = 2 << 20
