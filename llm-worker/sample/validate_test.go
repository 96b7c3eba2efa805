package sample_test

import (
	"errors"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const vocab = 100

func TestValidateRefusesByName(t *testing.T) {
	for _, c := range []struct {
		param string
		p     *llmv1.Sampling
	}{
		{"sampling.temperature", &llmv1.Sampling{Temperature: new(float32(-0.1))}},
		{"sampling.temperature", &llmv1.Sampling{Temperature: new(nan)}},
		{"sampling.temperature", &llmv1.Sampling{Temperature: new(inf)}},
		{"sampling.top_p", &llmv1.Sampling{TopP: new(float32(0))}},
		{"sampling.top_p", &llmv1.Sampling{TopP: new(float32(1.01))}},
		{"sampling.top_p", &llmv1.Sampling{TopP: new(nan)}},
		{"sampling.min_p", &llmv1.Sampling{MinP: new(float32(-0.01))}},
		{"sampling.min_p", &llmv1.Sampling{MinP: new(float32(1.01))}},
		{"sampling.min_p", &llmv1.Sampling{MinP: new(nan)}},
		{"sampling.repetition_penalty", &llmv1.Sampling{RepetitionPenalty: new(float32(0))}},
		{"sampling.repetition_penalty", &llmv1.Sampling{RepetitionPenalty: new(float32(-1))}},
		{"sampling.repetition_penalty", &llmv1.Sampling{RepetitionPenalty: new(inf)}},
		{"sampling.repetition_penalty", &llmv1.Sampling{RepetitionPenalty: new(nan)}},
		{"sampling.frequency_penalty", &llmv1.Sampling{FrequencyPenalty: new(float32(2.1))}},
		{"sampling.frequency_penalty", &llmv1.Sampling{FrequencyPenalty: new(nan)}},
		{"sampling.presence_penalty", &llmv1.Sampling{PresencePenalty: new(float32(-2.1))}},
		{"sampling.presence_penalty", &llmv1.Sampling{PresencePenalty: new(-inf)}},
		{"sampling.logit_bias", &llmv1.Sampling{LogitBias: map[uint32]float32{vocab: 1}}},
		{"sampling.logit_bias", &llmv1.Sampling{LogitBias: map[uint32]float32{1: 100.5}}},
		{"sampling.logit_bias", &llmv1.Sampling{LogitBias: map[uint32]float32{1: nan}}},
		{"sampling.stop_token_ids", &llmv1.Sampling{StopTokenIds: []uint32{1, vocab}}},
		{"sampling.max_tokens", &llmv1.Sampling{MaxTokens: new(uint32(0))}},
		{"sampling.min_tokens", &llmv1.Sampling{MinTokens: new(uint32(3)), MaxTokens: new(uint32(2))}},
	} {
		err := sample.Validate(c.p, vocab)
		e, ok := errors.AsType[*streamerr.Error](err)
		if !ok || e.Reason != streamerr.Invalid || e.Param != c.param || e.Message == "" {
			t.Errorf("%v: %v (%+v), want a refusal of %s", c.p, err, e, c.param)
		}
	}
}

func TestValidateAcceptsTheEdgesOfTheRanges(t *testing.T) {
	for _, p := range []*llmv1.Sampling{
		nil,
		{},
		{
			Temperature: new(float32(0)), TopP: new(float32(1)), TopK: new(uint32(0)), MinP: new(float32(0)), RepetitionPenalty: new(float32(1e-3)),
			FrequencyPenalty: new(float32(-2)), PresencePenalty: new(float32(-2)), LogitBias: map[uint32]float32{0: -100, vocab - 1: 100},
			Seed: new(uint64(0)), MinTokens: new(uint32(0)), MaxTokens: new(uint32(1)), StopTokenIds: []uint32{vocab - 1},
		},
		{
			Temperature: new(float32(100)), TopP: new(float32(1e-6)), TopK: new(uint32(1 << 31)), MinP: new(float32(1)), RepetitionPenalty: new(float32(50)),
			FrequencyPenalty: new(float32(2)), PresencePenalty: new(float32(2)), MinTokens: new(uint32(5)), MaxTokens: new(uint32(5)),
		},
		{MinTokens: new(uint32(1 << 31))},
	} {
		if err := sample.Validate(p, vocab); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
}

func TestValidateNamesTheLowestBiasAtFault(t *testing.T) {
	p := &llmv1.Sampling{LogitBias: map[uint32]float32{}}
	for id := range uint32(50) {
		p.LogitBias[id+vocab/2] = 1000
	}
	want := sample.Validate(p, vocab).Error()
	for range 20 {
		if got := sample.Validate(p, vocab).Error(); got != want {
			t.Fatalf("%q, then %q", want, got)
		}
	}
}
