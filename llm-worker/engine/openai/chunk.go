package openai

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
)

// A chunk is the data of one event of /v1/completions, or of /v1/chat/completions.
type chunk struct {
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Object  string          `json:"object"` // "error", from older servers
}

type choice struct {
	Text     lexicon.Part   `json:"text"`
	TokenIDs []uint32       `json:"token_ids"` // of vLLM and SGLang
	Logprobs *namedLogprobs `json:"logprobs"`
	Finish   *string        `json:"finish_reason"`
	Delta    struct {
		Content string `json:"content"`
	} `json:"delta"` // of a chat: the text of token_ids
}

type usage struct {
	Prompt     uint32 `json:"prompt_tokens"`
	Completion uint32 `json:"completion_tokens"`
	Details    struct {
		Cached *uint32 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// readChunk reads an event's data. The error is an ending, in the dialect of the server.
func readChunk(data []byte, dialect beside.Dialect) (*chunk, error) {
	c := new(chunk)
	if err := json.Unmarshal(data, c); err != nil {
		return nil, beside.Broken(fmt.Errorf("an event is not a completion: %w", err))
	}
	switch {
	case len(c.Error) > 0 && string(c.Error) != "null", c.Object == "error":
		return nil, dialect.Complete(overhttp.ReadComplaint(data), true).Ending(beside.InAnswer)
	case c.Choices == nil && c.Usage == nil:
		return nil, beside.Broken(errors.New("an event has neither choices nor usage"))
	case len(c.Choices) > 1:
		return nil, beside.Broken(fmt.Errorf("an event has %d choices, where one was asked for", len(c.Choices)))
	}
	return c, nil
}
