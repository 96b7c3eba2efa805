package sglang

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// samplingSetter parses one of the sampling_params.
type samplingSetter = func(r *chatv1.ChatRequest, param string, raw json.RawMessage) error

// sampling are the sampling_params.
var sampling = strict.Table[*chatv1.ChatRequest]{Honoured: map[string]samplingSetter{
	"sampling_params.max_new_tokens":     count(1, func(s *llmv1.Sampling, n uint32) { s.MaxTokens = &n }),
	"sampling_params.min_new_tokens":     count(0, func(s *llmv1.Sampling, n uint32) { s.MinTokens = &n }),
	"sampling_params.temperature":        float(0, math.MaxFloat32, func(s *llmv1.Sampling, v float32) { s.Temperature = &v }),
	"sampling_params.min_p":              float(0, 1, func(s *llmv1.Sampling, v float32) { s.MinP = &v }),
	"sampling_params.frequency_penalty":  float(-2, 2, func(s *llmv1.Sampling, v float32) { s.FrequencyPenalty = &v }),
	"sampling_params.presence_penalty":   float(-2, 2, func(s *llmv1.Sampling, v float32) { s.PresencePenalty = &v }),
	"sampling_params.top_p":              float(math.SmallestNonzeroFloat32, 1, func(s *llmv1.Sampling, v float32) { s.TopP = &v }),
	"sampling_params.repetition_penalty": float(math.SmallestNonzeroFloat32, 2, func(s *llmv1.Sampling, v float32) { s.RepetitionPenalty = &v }),
	"sampling_params.top_k": func(r *chatv1.ChatRequest, param string, raw json.RawMessage) error {
		v, err := strict.Integer(param, raw, -1, math.MaxInt32)
		r.Sampling.TopK = new(uint32(max(v, 0))) // -1 and 0 both keep all tokens
		return err
	},
	"sampling_params.sampling_seed": func(r *chatv1.ChatRequest, param string, raw json.RawMessage) error {
		v, err := strict.Integer(param, raw, math.MinInt64, math.MaxInt64)
		r.Sampling.Seed = new(uint64(v))
		return err
	},
	"sampling_params.n": func(r *chatv1.ChatRequest, param string, raw json.RawMessage) error {
		v, err := strict.Integer(param, raw, 1, math.MaxInt32)
		r.N = uint32(v)
		return err
	},
	"sampling_params.stop": func(r *chatv1.ChatRequest, param string, raw json.RawMessage) (err error) {
		if strict.Empty(raw) {
			return nil
		}
		r.Stop, err = strict.Stops(param, raw)
		return err
	},
	"sampling_params.stop_token_ids": func(r *chatv1.ChatRequest, param string, raw json.RawMessage) (err error) {
		r.Sampling.StopTokenIds, err = strict.IDs(param, raw)
		return err
	},
	"sampling_params.ignore_eos": func(r *chatv1.ChatRequest, param string, raw json.RawMessage) (err error) {
		r.Sampling.IgnoreEos, err = strict.Boolean(param, raw)
		return err
	},
	"sampling_params.no_stop_trim": func(r *chatv1.ChatRequest, param string, raw json.RawMessage) (err error) {
		r.IncludeStop, err = strict.Boolean(param, raw)
		return err
	},
	"sampling_params.skip_special_tokens": func(r *chatv1.ChatRequest, param string, raw json.RawMessage) error {
		skip, err := strict.Boolean(param, raw)
		r.KeepSpecial = err == nil && !skip
		return err
	},
	"sampling_params.logit_bias":  setLogitBias,
	"sampling_params.json_schema": setSchema,
	"sampling_params.regex": func(r *chatv1.ChatRequest, param string, raw json.RawMessage) error {
		expression, err := strict.String(param, raw)
		if expression != "" {
			r.Sampling.Guide = &llmv1.Guide{Forms: []*llmv1.GuideForm{{Pattern: expression}}}
		}
		return err
	},
}, Ignored: []string{
	"sampling_params.stream_interval",
}, Unsupported: []string{
	"sampling_params.custom_params",
}, Refused: map[string]string{
	"sampling_params.ebnf":           guided,
	"sampling_params.structural_tag": guided,
	"sampling_params.stop_regex":     "decides where the answer ends, and is not supported here; stop is",
}}

const guided = "constrains the answer, and cannot be enforced by any worker here; json_schema and regex can"

// anySchema is SGLang's name for any JSON.
const anySchema = `"$$ANY$$"`

// setSchema parses a JSON Schema, which SGLang takes as a text.
func setSchema(r *chatv1.ChatRequest, param string, raw json.RawMessage) error {
	switch {
	case string(raw) == `""`:
		return nil
	case string(raw) == anySchema:
		raw = json.RawMessage("{}")
	case raw[0] == '"':
		schema, err := strict.String(param, raw)
		if err != nil {
			return err
		}
		if raw = json.RawMessage(strings.TrimSpace(schema)); !json.Valid(raw) {
			return streamerr.InvalidParam(param, "%s is a text that is not JSON", param)
		}
	}
	schema, err := strict.Compact(param, raw)
	r.Sampling.Guide = &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: schema}}}
	return err
}

// outer maps field names of the IDL to names of sampling_params.
var outer = map[string]string{
	"sampling.max_tokens": "sampling_params.max_new_tokens", "sampling.min_tokens": "sampling_params.min_new_tokens",
	"sampling.temperature": "sampling_params.temperature", "sampling.top_p": "sampling_params.top_p", "sampling.top_k": "sampling_params.top_k",
	"sampling.min_p": "sampling_params.min_p", "sampling.repetition_penalty": "sampling_params.repetition_penalty",
	"sampling.frequency_penalty": "sampling_params.frequency_penalty", "sampling.presence_penalty": "sampling_params.presence_penalty",
	"sampling.logit_bias": "sampling_params.logit_bias", "sampling.seed": "sampling_params.sampling_seed", "sampling.ignore_eos": "sampling_params.ignore_eos",
	"sampling.stop_token_ids": "sampling_params.stop_token_ids", "sampling.logprobs": "return_logprob",
	"sampling.guide": "sampling_params.json_schema", "images": "image_data", "n": "sampling_params.n", "stop": "sampling_params.stop",
}

func count(low int64, set func(*llmv1.Sampling, uint32)) samplingSetter {
	return func(r *chatv1.ChatRequest, param string, raw json.RawMessage) error {
		n, err := strict.Count(param, raw, low)
		if err == nil {
			set(r.GetSampling(), *n)
		}
		return err
	}
}

func float(low, high float64, set func(*llmv1.Sampling, float32)) samplingSetter {
	return func(r *chatv1.ChatRequest, param string, raw json.RawMessage) error {
		v, err := strict.Number(param, raw, low, high)
		if err == nil {
			set(r.GetSampling(), v)
		}
		return err
	}
}

func setLogitBias(r *chatv1.ChatRequest, param string, raw json.RawMessage) error {
	items, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	r.Sampling.LogitBias = make(map[uint32]float32, len(items))
	for key, raw := range items {
		id, err := strconv.ParseUint(key, 10, 31)
		if err != nil {
			return streamerr.InvalidParam(param, "%s has the key %q; keys must be token ids", param, strict.Printable(key))
		}
		if r.Sampling.LogitBias[uint32(id)], err = strict.Number(strings.Join([]string{param, key}, "."), raw, -100, 100); err != nil {
			return err
		}
	}
	return nil
}
