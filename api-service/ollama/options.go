package ollama

import (
	"encoding/json"
	"math"

	"github.com/whence-dev/whence/api-service/strict"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// options are the members of the field options, by their paths.
var options = strict.Table[*body]{Honoured: map[string]setter{
	// Negative numbers mean no limit, or what the context leaves, which is the same here.
	"options.num_predict": integer(func(b *body, n int64) {
		if n > 0 {
			b.request.Sampling.MaxTokens = new(uint32(min(n, math.MaxInt32)))
		}
	}),
	"options.temperature": float(0, math.MaxFloat32, func(s *llmv1.Sampling, v float32) { s.Temperature = &v }),
	"options.top_k": integer(func(b *body, n int64) {
		b.request.Sampling.TopK = new(uint32(min(max(n, 0), math.MaxInt32))) // 0 keeps all tokens
	}),
	"options.top_p": float(0, 1, func(s *llmv1.Sampling, v float32) {
		if v == 0 {
			v = math.SmallestNonzeroFloat32 // "keep nothing" can only mean the most likely token
		}
		s.TopP = &v
	}),
	"options.min_p": float(0, 1, func(s *llmv1.Sampling, v float32) { s.MinP = &v }),
	"options.repeat_penalty": float(0, math.MaxFloat32, func(s *llmv1.Sampling, v float32) {
		if v > 0 {
			s.RepetitionPenalty = &v
		}
	}),
	"options.presence_penalty":  float(-2, 2, func(s *llmv1.Sampling, v float32) { s.PresencePenalty = &v }),
	"options.frequency_penalty": float(-2, 2, func(s *llmv1.Sampling, v float32) { s.FrequencyPenalty = &v }),
	"options.seed": integer(func(b *body, n int64) {
		if n >= 0 { // -1 means any
			b.request.Sampling.Seed = new(uint64(n)) //nolint:gosec // it is not negative
		}
	}),
	"options.stop": func(b *body, param string, raw json.RawMessage) (err error) {
		b.request.Stop, err = strict.Stops(param, raw)
		return err
	},
}, Ignored: []string{ // how a server runs the model
	"options.draft_num_predict", "options.embedding_only", "options.f16_kv", "options.logits_all", "options.low_vram", "options.main_gpu", "options.num_batch",
	"options.num_ctx", "options.num_gpu", "options.num_keep", "options.num_thread", "options.numa", "options.rope_frequency_base",
	"options.rope_frequency_scale", "options.use_mlock", "options.use_mmap", "options.vocab_only",
}, Unsupported: []string{
	"options.mirostat", "options.mirostat_eta", "options.mirostat_tau", "options.penalize_newline", "options.repeat_last_n", "options.tfs_z", "options.typical_p",
}}

// optionOf maps names of the IDL's sampling fields to options.
var optionOf = map[string]string{
	"max_tokens": "num_predict", "temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "repetition_penalty": "repeat_penalty",
	"presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty", "seed": "seed",
}

// OptionFields returns how each of the options is treated.
func OptionFields() map[string]string { return options.Fields() }

func setOptions(b *body, param string, raw json.RawMessage) error {
	members, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	named := make(map[string]json.RawMessage, len(members))
	for name, raw := range members {
		named[param+"."+name] = raw
	}
	return options.Parse(named, b, b.in)
}

func integer(set func(b *body, n int64)) setter {
	return func(b *body, param string, raw json.RawMessage) error {
		n, err := strict.Integer(param, raw, math.MinInt64, math.MaxInt64)
		if err == nil {
			set(b, n)
		}
		return err
	}
}

func float(low, high float64, set func(*llmv1.Sampling, float32)) setter {
	return func(b *body, param string, raw json.RawMessage) error {
		v, err := strict.Number(param, raw, low, high)
		if err == nil {
			set(b.request.GetSampling(), v)
		}
		return err
	}
}
