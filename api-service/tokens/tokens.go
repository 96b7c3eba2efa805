// Package tokens is the JSON of POST /tokenize and /detokenize, as in vLLM.
package tokens

import (
	"encoding/json"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/openai/conversation"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A body holds the fields of both requests.
type body struct {
	in         *strict.Reading
	request    *chatv1.TokenizeRequest
	prompt     bool     // the body has a prompt
	special    *bool    // nil if absent
	generation bool     // add_generation_prompt
	tokens     []uint32 // to detokenize; nil if absent
}

type setter = func(b *body, param string, raw json.RawMessage) error

func setModel(b *body, param string, raw json.RawMessage) (err error) {
	b.request.Model, err = strict.String(param, raw)
	return err
}

// flag parses a boolean into the field that at returns.
func flag(at func(*body) *bool) setter {
	return func(b *body, param string, raw json.RawMessage) (err error) {
		*at(b), err = strict.Boolean(param, raw)
		return err
	}
}

// only accepts a boolean only if it has the supported value.
func only(want bool) setter {
	return func(_ *body, param string, raw json.RawMessage) error {
		v, err := strict.Boolean(param, raw)
		if err == nil && v != want {
			return streamerr.InvalidParam(param, "%s must be %t, or left out", param, want).WithCode(streamerr.CodeUnsupportedValue)
		}
		return err
	}
}

var tokenize = map[string]setter{
	"model": setModel,
	"prompt": func(b *body, param string, raw json.RawMessage) (err error) {
		b.prompt = true
		b.request.Text, err = strict.String(param, raw)
		return err
	},
	"messages": func(b *body, param string, raw json.RawMessage) error {
		parsed, err := conversation.Parse(b.in, param, raw)
		if err != nil {
			return err
		}
		if len(parsed.Images) > 0 {
			return image.Uncounted(parsed.Images[0])
		}
		b.request.Messages, b.request.ContinueMessage = parsed.Messages, b.request.GetContinueMessage() || parsed.Continues
		return nil
	},
	"add_special_tokens": func(b *body, param string, raw json.RawMessage) error {
		add, err := strict.Boolean(param, raw)
		b.special = &add
		return err
	},
	"add_generation_prompt":  flag(func(b *body) *bool { return &b.generation }),
	"return_token_strs":      flag(func(b *body) *bool { return &b.request.Strings }),
	"continue_final_message": only(false),
}

var detokenize = map[string]setter{
	"model": setModel,
	"tokens": func(b *body, param string, raw json.RawMessage) (err error) {
		b.tokens, err = strict.IDs(param, raw)
		return err
	},
}

// ParseTokenize parses the body of POST /tokenize: a prompt, to which special tokens are added
// unless the body says otherwise, or messages, which the chat template renders. Its errors are
// *streamerr.Error with reason INVALID, whose Param is the invalid field.
func ParseTokenize(data []byte, in *strict.Reading) (*chatv1.TokenizeRequest, error) {
	b := &body{in: in, request: &chatv1.TokenizeRequest{}, generation: true}
	fields, err := strict.Fields(data)
	if err == nil {
		err = strict.Each(fields, b, in, tokenize)
	}
	switch {
	case err != nil:
		return nil, err
	case b.prompt && len(b.request.GetMessages()) > 0:
		return nil, streamerr.InvalidParam("prompt", "the request has both messages and a prompt; leave one of them out")
	case !b.prompt && len(b.request.GetMessages()) == 0:
		return nil, streamerr.InvalidParam("prompt", "the request has neither messages nor a prompt").WithCode(streamerr.CodeMissing)
	}
	b.request.AddSpecial = b.prompt
	if b.special != nil {
		b.request.AddSpecial = *b.special
	}
	b.request.AddGenerationPrompt = b.generation && !b.prompt
	return b.request, nil
}

// Tokenized returns the answer.
func Tokenized(resp *chatv1.TokenizeResponse) []byte {
	return marshal(struct {
		Count     int      `json:"count"`
		MaxLength uint32   `json:"max_model_len"`
		Tokens    []uint32 `json:"tokens"`
		Strings   []string `json:"token_strs"`
	}{len(resp.GetIds()), resp.GetContextLength(), append([]uint32{}, resp.GetIds()...), resp.GetStrings()})
}

// ParseDetokenize parses the body of POST /detokenize. Its errors are as those of ParseTokenize.
func ParseDetokenize(data []byte, in *strict.Reading) (*chatv1.DetokenizeRequest, error) {
	b := &body{request: &chatv1.TokenizeRequest{}}
	fields, err := strict.Fields(data)
	if err == nil {
		err = strict.Each(fields, b, in, detokenize)
	}
	switch {
	case err != nil:
		return nil, err
	case b.tokens == nil:
		return nil, streamerr.InvalidParam("tokens", "tokens is missing").WithCode(streamerr.CodeMissing)
	}
	return &chatv1.DetokenizeRequest{Model: b.request.GetModel(), Ids: b.tokens}, nil
}

// Detokenized returns the answer.
func Detokenized(resp *chatv1.DetokenizeResponse) []byte {
	return marshal(struct {
		Prompt string `json:"prompt"`
	}{resp.GetText()})
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: structs of strings and numbers
	}
	return b
}
