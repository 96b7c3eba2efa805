package openai

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/whence-dev/whence/internal/jsonscan"
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

	one [1]choice // memory of Choices
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

// scan reads a chunk of the usual form into an empty one. What it accepts, encoding/json would read in the
// same way; what it rejects, encoding/json has to read.
func (c *chunk) scan(data []byte) bool {
	s := jsonscan.New(data)
	return s.Object(func(name []byte) bool {
		switch string(name) {
		case "choices":
			return c.scanChoices(&s)
		case "usage":
			return jsonscan.Pointer(&s, &c.Usage, func(u *usage) bool { return u.scan(&s) })
		case "error":
			return s.Value(&c.Error)
		case "object":
			return s.String(&c.Object)
		default:
			return s.Other(name)
		}
	}) && s.End()
}

func (c *chunk) scanChoices(s *jsonscan.Scanner) bool {
	if c.Choices != nil || s.Null() {
		return c.Choices == nil
	}
	c.Choices = c.one[:0]
	return s.Array(func() bool {
		c.Choices = append(c.Choices, choice{})
		return c.Choices[len(c.Choices)-1].scan(s)
	})
}

func (c *choice) scan(s *jsonscan.Scanner) bool {
	return s.Object(func(name []byte) bool {
		switch string(name) {
		case "text":
			text, ok := s.Raw()
			return ok && c.Text.UnmarshalJSON(text) == nil
		case "token_ids":
			return s.Uint32s(&c.TokenIDs)
		case "logprobs": // of few requests
			return jsonscan.Pointer(s, &c.Logprobs, func(l *namedLogprobs) bool { return s.Value(l) })
		case "finish_reason":
			return jsonscan.Pointer(s, &c.Finish, s.String)
		case "delta":
			return s.Null() || s.Object(func(name []byte) bool {
				if string(name) == "content" {
					return s.String(&c.Delta.Content)
				}
				return s.Other(name)
			})
		default:
			return s.Other(name)
		}
	})
}

func (u *usage) scan(s *jsonscan.Scanner) bool {
	return s.Object(func(name []byte) bool {
		switch string(name) {
		case "prompt_tokens":
			return s.Uint32(&u.Prompt)
		case "completion_tokens":
			return s.Uint32(&u.Completion)
		case "prompt_tokens_details":
			return s.Null() || s.Object(func(name []byte) bool {
				if string(name) == "cached_tokens" {
					return jsonscan.Pointer(s, &u.Details.Cached, s.Uint32)
				}
				return s.Other(name)
			})
		default:
			return s.Other(name)
		}
	})
}

// read reads an event's data into c, whatever it was. The error is an ending, in the dialect of the server.
func (c *chunk) read(data []byte, dialect beside.Dialect) error {
	*c = chunk{}
	if !c.scan(data) {
		*c = chunk{}
		if err := json.Unmarshal(data, c); err != nil {
			return beside.Broken(fmt.Errorf("an event is not a completion: %w", err))
		}
	}
	switch {
	case len(c.Error) > 0 && string(c.Error) != "null", c.Object == "error":
		return dialect.Complete(overhttp.ReadComplaint(data), true).Ending(beside.InAnswer)
	case c.Choices == nil && c.Usage == nil:
		return beside.Broken(errors.New("an event has neither choices nor usage"))
	case len(c.Choices) > 1:
		return beside.Broken(fmt.Errorf("an event has %d choices, where one was asked for", len(c.Choices)))
	}
	return nil
}
