package openai

import (
	"encoding/json"
	"fmt"
	"math"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A completion is the body of POST /v1/completions. Stop strings are deliberately absent: chat-service looks for them.
type completion struct {
	Model          string        `json:"model"`
	Prompt         any           `json:"prompt"` // a string or []uint32
	MaxTokens      int           `json:"max_tokens"`
	Stream         bool          `json:"stream"`
	StreamOptions  streamOptions `json:"stream_options"`
	ReturnTokenIDs bool          `json:"return_token_ids,omitempty"`

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

	RepetitionPenalty *float32 `json:"repetition_penalty,omitempty"`
	RepeatPenalty     *float32 `json:"repeat_penalty,omitempty"` // llama.cpp's name for it
	RepeatLastN       *int     `json:"repeat_last_n,omitempty"`  // and how far its penalties look back; -1 is to the beginning
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// check refuses a request that no server could answer, in the words of the embedded engine.
func (m *Model) check(req *workerv1.TokenRequest, context int) error {
	prompt := req.GetPrompt()
	switch {
	case len(prompt) == 0:
		return streamerr.InvalidParam("prompt", "the prompt has no tokens")
	case len(prompt) >= context:
		return streamerr.InvalidParam("prompt", "the prompt has %d tokens; the context of %d must hold it and at least one more", len(prompt), context)
	}
	for i, id := range prompt {
		if int64(id) >= int64(m.VocabSize) {
			return streamerr.InvalidParam(fmt.Sprintf("prompt[%d]", i), "token id %d is not below %d, the size of the vocabulary", id, m.VocabSize)
		}
	}
	return sample.Validate(req.GetSampling(), m.VocabSize)
}

// body makes the request's body for the upstream.
func (e *Engine) body(up *upstream, req *workerv1.TokenRequest) ([]byte, error) {
	if err := e.model.check(req, up.context); err != nil {
		return nil, err
	}
	s := req.GetSampling()
	if err := up.kind.check(s); err != nil {
		return nil, err
	}
	c := completion{
		Model: up.model, Prompt: req.GetPrompt(), Stream: true, StreamOptions: streamOptions{IncludeUsage: true},
		ReturnTokenIDs: up.askIDs,
		MaxTokens:      up.context - len(req.GetPrompt()), // said, because some have a default of 16
	}
	if up.prompt == workerv1.Form_FORM_TEXT {
		text, err := e.model.spell(req.GetPrompt())
		if err != nil {
			return nil, err
		}
		c.Prompt = text
	}
	if s != nil {
		c.sample(up.kind, s)
	}
	return json.Marshal(c)
}

// sample copies what is asked for. What is not is left to the server's defaults.
func (c *completion) sample(k *kind, s *streamv1.Sampling) {
	if s.MaxTokens != nil {
		c.MaxTokens = int(min(int64(c.MaxTokens), int64(*s.MaxTokens)))
	}
	c.Temperature, c.TopP, c.FrequencyPenalty, c.PresencePenalty = s.Temperature, s.TopP, s.FrequencyPenalty, s.PresencePenalty
	if s.Seed != nil {
		seed := *s.Seed % math.MaxInt32 // no server takes more from all clients; the same seed stays the same
		c.Seed = &seed
	}
	c.LogitBias, c.MinTokens, c.IgnoreEOS, c.StopTokenIDs = s.GetLogitBias(), s.GetMinTokens(), s.GetIgnoreEos(), s.GetStopTokenIds()
	if k.has("top_k") && s.TopK != nil {
		n := int64(*s.TopK)
		if n == 0 {
			n = -1
		}
		c.TopK = &n
	}
	if k.has("min_p") {
		c.MinP = s.MinP
	}
	switch {
	case k == llamacpp:
		c.RepeatPenalty = s.RepetitionPenalty
		if all := -1; s.RepetitionPenalty != nil || s.FrequencyPenalty != nil || s.PresencePenalty != nil {
			c.RepeatLastN = &all
		}
	case k.has("repetition_penalty"):
		c.RepetitionPenalty = s.RepetitionPenalty
	}
}
