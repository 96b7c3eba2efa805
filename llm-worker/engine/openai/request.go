package openai

import (
	"encoding/json"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// A completion is the body of POST /v1/completions. Stop strings are deliberately absent:
// chat-service detects them.
type completion struct {
	Model          string          `json:"model"`
	LoRAPath       string          `json:"lora_path,omitempty"`  // of SGLang: the name of an adapter
	Prompt         any             `json:"prompt,omitempty"`     // a string or []uint32; nil in a chat
	MaxTokens      int             `json:"max_tokens,omitempty"` // 0 means as many as the context holds
	Stream         bool            `json:"stream"`
	StreamOptions  *streamOptions  `json:"stream_options,omitempty"`
	ReturnTokenIDs bool            `json:"return_token_ids,omitempty"`
	KVTransfer     json.RawMessage `json:"kv_transfer_params,omitempty"` // of vLLM

	Temperature      *float32           `json:"temperature,omitempty"`
	TopP             *float32           `json:"top_p,omitempty"`
	TopK             *int64             `json:"top_k,omitempty"` // -1 keeps all, for all servers
	MinP             *float32           `json:"min_p,omitempty"`
	FrequencyPenalty *float32           `json:"frequency_penalty,omitempty"`
	PresencePenalty  *float32           `json:"presence_penalty,omitempty"`
	LogitBias        map[uint32]float32 `json:"logit_bias,omitempty"`
	Seed             *uint64            `json:"seed,omitempty"`
	MinTokens        uint32             `json:"min_tokens,omitempty"`
	IgnoreEOS        bool               `json:"ignore_eos,omitempty"`
	StopTokenIDs     []uint32           `json:"stop_token_ids,omitempty"`
	Logprobs         *uint32            `json:"logprobs,omitempty"`
	TokensAsIDs      bool               `json:"return_tokens_as_token_ids,omitempty"` // in logprobs
	Echo             bool               `json:"echo,omitempty"`                       // logprobs begin with those of the prompt
	SkipSpecial      *bool              `json:"skip_special_tokens,omitempty"`

	RepetitionPenalty *float32 `json:"repetition_penalty,omitempty"`
	RepeatPenalty     *float32 `json:"repeat_penalty,omitempty"` // llama.cpp's name for it
	RepeatLastN       *int     `json:"repeat_last_n,omitempty"`  // of llama.cpp: see beside.PenaltyWindow

	guideFields
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
	Continuous   bool `json:"continuous_usage_stats,omitempty"` // of vLLM and SGLang: in every event
}

// completion returns the request's body for the upstream.
func (e *Engine) completion(up *upstream, req *workerv1.TokenRequest) (*completion, error) {
	if err := up.Check(req); err != nil {
		return nil, err
	}
	s := up.Rest(req)
	c := &completion{
		Model: up.model, Prompt: req.GetPrompt(), Stream: true, StreamOptions: &streamOptions{IncludeUsage: true},
		ReturnTokenIDs: up.askIDs,
		MaxTokens:      int(up.Limit(req, s)),
	}
	c.adapt(up.kind, req.GetAdapter())
	if up.prompt == llmv1.Form_FORM_TEXT {
		text, err := e.model.Spell(req.GetPrompt())
		if err != nil {
			return nil, err
		}
		c.Prompt = text
	}
	c.sample(up, s)
	if up.kind == whence {
		c.SkipSpecial = new(bool) // the server returns the ids of special tokens only with their text
	}
	c.guideFields = guideBy(up.kind, s.GetGuide())
	var err error
	if c.KVTransfer, err = given(req); err != nil {
		return nil, err
	}
	return c, nil
}

// adapt names the adapter that answers, unless it is empty.
func (c *completion) adapt(k *kind, adapter string) {
	if adapter == "" {
		return
	}
	switch k.adapters {
	case asModel:
		c.Model = adapter
	case asLoRAPath:
		c.LoRAPath = adapter
	case noAdapters: // Check has refused the request
	}
}

// has reports whether the server honours a field of Sampling.
func (u *upstream) has(field string) bool { return u.kind.Has(field, u.reported...) }

// sample copies the fields that the request sets. The server's defaults apply to the others.
func (c *completion) sample(up *upstream, s *llmv1.Sampling) {
	c.Temperature, c.TopP, c.FrequencyPenalty, c.PresencePenalty = s.Temperature, s.TopP, s.FrequencyPenalty, s.PresencePenalty
	if s.Seed != nil {
		c.Seed = new(up.kind.seed(*s.Seed))
	}
	c.LogitBias, c.MinTokens, c.IgnoreEOS, c.StopTokenIDs = s.GetLogitBias(), s.GetMinTokens(), s.GetIgnoreEos(), s.GetStopTokenIds()
	if up.has("top_k") && s.TopK != nil {
		n := int64(*s.TopK)
		if n == 0 {
			n = -1
		}
		c.TopK = &n
	}
	if up.has("min_p") {
		c.MinP = s.MinP
	}
	c.Logprobs, c.TokensAsIDs, c.Echo = s.Logprobs, s.Logprobs != nil, s.GetPromptLogprobs()
	switch {
	case up.kind == llamacpp:
		c.RepeatPenalty, c.RepeatLastN = s.RepetitionPenalty, up.PenaltyWindow(s)
	case up.has("repetition_penalty"):
		c.RepetitionPenalty = s.RepetitionPenalty
	}
}
