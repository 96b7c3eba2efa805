package openai

import (
	"encoding/json"
	"errors"
	"fmt"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// done is the data of a stream's last event.
const done = "[DONE]"

// A chunk is the data of one event of /v1/completions.
type chunk struct {
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Object  string          `json:"object"` // "error", from older servers
}

type choice struct {
	Text     part     `json:"text"`
	TokenIDs []uint32 `json:"token_ids"` // of vLLM and SGLang
	Finish   *string  `json:"finish_reason"`
}

type usage struct {
	Prompt     uint32 `json:"prompt_tokens"`
	Completion uint32 `json:"completion_tokens"`
	Details    struct {
		Cached uint32 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// A complaint is what the server says in the place of a chunk.
type complaint string

func (c complaint) Error() string { return string(c) }

// readChunk reads an event's data. The error is a complaint where the server made one.
func readChunk(data []byte) (*chunk, error) {
	c := new(chunk)
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("an event is no completion: %w", err)
	}
	switch {
	case len(c.Error) > 0 && string(c.Error) != "null", c.Object == "error":
		return nil, complaint(messageOf(data))
	case c.Choices == nil && c.Usage == nil:
		return nil, errors.New("an event has neither choices nor usage")
	case len(c.Choices) > 1:
		return nil, fmt.Errorf("an event has %d choices, where one was asked for", len(c.Choices))
	}
	return c, nil
}

// finishes are the finish reasons of answers that are complete.
var finishes = map[string]streamv1.Finish{
	"stop":   streamv1.Finish_FINISH_STOP,
	"length": streamv1.Finish_FINISH_LENGTH,
}

// maxMessage bounds what is quoted of a server, in bytes: it is for people, and may hold a page.
const maxMessage = 512

// messageOf returns what a body says is wrong. Servers say it in every way there is: as an object or text in "error", on
// the top level, or, where FastAPI has refused the request, in "detail". What is none of these is quoted as it is.
func messageOf(body []byte) string {
	var said struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	var object struct {
		Message string `json:"message"`
	}
	var text string
	_ = json.Unmarshal(body, &said) // what does not fit leaves the fields empty
	_ = json.Unmarshal(said.Error, &object)
	_ = json.Unmarshal(said.Error, &text)
	switch {
	case object.Message != "":
		text = object.Message
	case text != "":
	case said.Message != "":
		text = said.Message
	case len(said.Detail) > 0:
		text = string(said.Detail)
		_ = json.Unmarshal(said.Detail, &text)
	default:
		text = string(body)
	}
	return clip(text, maxMessage)
}
