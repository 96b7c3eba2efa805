package sample

import (
	"math"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A bound is the range of a field, as in the proto.
type bound struct {
	field    string
	value    *float32
	min, max float32
	openMin  bool // min itself is not allowed
	says     string
}

// Validate returns an error if a model with vocab token ids cannot honour p; a nil p is always
// valid. The error is a *streamerr.Error with reason Invalid that names the field by its path in
// the request, such as "sampling.top_p".
func Validate(p *llmv1.Sampling, vocab int) error {
	if p == nil {
		return nil
	}
	for _, b := range []bound{
		{"temperature", p.Temperature, 0, math.MaxFloat32, false, "must be 0 or more"},
		{"top_p", p.TopP, 0, 1, true, "must be over 0 and at most 1"},
		{"min_p", p.MinP, 0, 1, false, "must be from 0 to 1"},
		{"repetition_penalty", p.RepetitionPenalty, 0, math.MaxFloat32, true, "must be over 0"},
		{"frequency_penalty", p.FrequencyPenalty, -2, 2, false, "must be from -2 to 2"},
		{"presence_penalty", p.PresencePenalty, -2, 2, false, "must be from -2 to 2"},
	} {
		if b.value != nil && !b.holds(*b.value) {
			return invalid(b.field, "%s %s, not %v", b.field, b.says, *b.value)
		}
	}
	if err := validateBias(p.GetLogitBias(), vocab); err != nil {
		return err
	}
	for _, id := range p.GetStopTokenIds() {
		if int64(id) >= int64(vocab) {
			return invalid("stop_token_ids", "stop_token_ids holds %d, but the vocabulary has %d tokens", id, vocab)
		}
	}
	if p.GetPromptLogprobs() && p.Logprobs == nil {
		return invalid("prompt_logprobs", "prompt_logprobs is set, but not logprobs")
	}
	if p.GetLogprobs() > MaxLogprobs {
		return invalid("logprobs", "logprobs is %d; it must be at most %d", p.GetLogprobs(), MaxLogprobs)
	}
	if p.MaxTokens != nil && *p.MaxTokens == 0 {
		return invalid("max_tokens", "max_tokens must be 1 or more")
	}
	if p.MaxTokens != nil && p.GetMinTokens() > *p.MaxTokens {
		return invalid("min_tokens", "min_tokens is %d, more than max_tokens, which is %d", p.GetMinTokens(), *p.MaxTokens)
	}
	return nil
}

// maxScores bounds the log-probabilities of a prompt, so that they fit into one message.
const maxScores = 256 << 10

// CheckScores returns an error as that of Validate if p asks for the log-probabilities of a prompt that has
// too many tokens.
func CheckScores(p *llmv1.Sampling, vocab, prompt int) error {
	most := maxScores / (1 + min(saturated(p.GetLogprobs()), vocab))
	if p.GetPromptLogprobs() && prompt > most {
		return invalid("prompt_logprobs", "the prompt has %d tokens; at most %d can have log-probabilities with so many alternatives", prompt, most)
	}
	return nil
}

// holds is false for NaN and for infinities.
func (b bound) holds(v float32) bool {
	return v >= b.min && v <= b.max && !(b.openMin && v == b.min)
}

// validateBias reports the lowest invalid id, so that the same request always gets the same answer.
func validateBias(biases map[uint32]float32, vocab int) error {
	var worst uint32
	var text error
	for id, v := range biases {
		if text != nil && id > worst {
			continue
		}
		switch {
		case int64(id) >= int64(vocab):
			worst, text = id, invalid("logit_bias", "logit_bias names token %d, but the vocabulary has %d tokens", id, vocab)
		case !(v >= -100 && v <= 100):
			worst, text = id, invalid("logit_bias", "logit_bias of token %d must be from -100 to 100, not %v", id, v)
		}
	}
	return text
}

func invalid(field, format string, args ...any) error {
	return streamerr.InvalidParam("sampling."+field, format, args...)
}

// Fields returns the names of all fields of Sampling. A Sampler honours every one.
func Fields() []string {
	fields := (*llmv1.Sampling)(nil).ProtoReflect().Descriptor().Fields()
	names := make([]string, fields.Len())
	for i := range names {
		names[i] = string(fields.Get(i).Name())
	}
	return names
}
