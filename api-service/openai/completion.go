package openai

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	maxLogprobs = 20
	// defaultMaxTokens is OpenAI's default for completions; chats have none.
	defaultMaxTokens = 16
)

// completionFields are the fields of completions.
var completionFields = shared.And(strict.Table[*Chat]{Honoured: map[string]setter{
	"prompt": setPrompt,
	"logprobs": func(c *Chat, param string, raw json.RawMessage) error {
		v, err := integer(param, raw, 0, maxLogprobs)
		c.Request.Sampling.Logprobs = new(uint32(v))
		return err
	},
	// Not in OpenAI's API; vLLM uses this name.
	"return_tokens_as_token_ids": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.idNames, err = boolean(param, raw)
		return err
	},
	"echo": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.Request.Echo, err = boolean(param, raw)
		return err
	},
	"best_of": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.bestOf, err = integer(param, raw, 0, 128)
		return err
	},
	"suffix": func(_ *Chat, param string, raw json.RawMessage) error {
		v, err := text(param, raw)
		if err == nil && v != "" {
			return unsupported(param, "%s is not supported by this model", param)
		}
		return err
	},
}})

// ParseCompletion parses a body of completions, like ParseChat.
func ParseCompletion(body []byte, in *strict.Reading) (*Chat, error) {
	fields, err := strict.Fields(body)
	if err != nil {
		return nil, err
	}
	defer strict.Recycle(fields)
	return parseCompletion(fields, false, in)
}

func parseCompletion(fields map[string]json.RawMessage, stream bool, in *strict.Reading) (*Chat, error) {
	c := newChat(in)
	c.Stream, c.completion = stream, true
	if err := c.set(fields, &completionFields); err != nil {
		return nil, err
	}
	switch {
	case len(c.Request.GetPrompts()) == 0:
		return nil, streamerr.InvalidParam("prompt", "prompt is missing or empty").WithCode(streamerr.CodeMissing)
	case c.bestOf > max(1, int64(c.Request.GetN())): // all answers are returned
		if err := in.Unsupported("best_of"); err != nil {
			return nil, err
		}
	case c.bestOf != 0 && c.bestOf < max(1, int64(c.Request.GetN())):
		return nil, streamerr.InvalidParam("best_of", "best_of is %d, and n %d; it must be at least n", c.bestOf, c.Request.GetN())
	}
	if most := c.Request.GetSampling().MaxTokens; most != nil && *most == 0 && !c.Request.GetEcho() {
		return nil, streamerr.InvalidParam(c.maxTokens, "%s is 0; it must be at least 1, except with echo", c.maxTokens)
	}
	if c.Request.GetSampling().MaxTokens == nil && !c.unlimited {
		c.Request.Sampling.MaxTokens, c.defaultTokens = new(uint32(defaultMaxTokens)), true
	}
	return c, nil
}

func setPrompt(c *Chat, param string, raw json.RawMessage) (err error) {
	c.Request.Prompts, _, err = prompts(param, raw, func(n int) error { return call.CheckPrompts(param, n) })
	return err
}

// prompts parses a string, an array of strings, an array of token ids, or an array of such arrays;
// an empty array yields no prompts. list reports that the input is an array of prompts, whose
// length check has accepted.
func prompts(param string, raw json.RawMessage, check func(n int) error) (all []*chatv1.Prompt, list bool, err error) {
	if raw[0] == '"' {
		s, err := text(param, raw)
		return []*chatv1.Prompt{textPrompt(s)}, false, err
	}
	if raw[0] != '[' {
		return nil, false, mismatch(param, "a string, an array of strings, an array of token ids, or an array of such arrays", raw)
	}
	switch first := bytes.TrimLeft(raw[1:], " \t\r\n")[0]; first {
	case ']':
		return nil, true, nil
	case '"', '[':
	default:
		p, err := idsPrompt(param, raw)
		return []*chatv1.Prompt{p}, false, err
	}
	items, err := array(param, raw)
	if err == nil {
		err = check(len(items))
	}
	if err != nil {
		return nil, true, err
	}
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		var p *chatv1.Prompt
		if bytes.HasPrefix(items[0], []byte{'['}) {
			p, err = idsPrompt(at, item)
		} else {
			var s string
			s, err = text(at, item)
			p = textPrompt(s)
		}
		if err != nil {
			return nil, true, err
		}
		all = append(all, p)
	}
	return all, true, nil
}

func textPrompt(s string) *chatv1.Prompt {
	return &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: s}}
}

func idsPrompt(param string, raw json.RawMessage) (*chatv1.Prompt, error) {
	ids, err := strict.IDs(param, raw)
	return &chatv1.Prompt{Content: &chatv1.Prompt_Ids{Ids: &chatv1.TokenIDs{Ids: ids}}}, err
}
