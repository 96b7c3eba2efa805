// Package tokens is the JSON of POST /tokenize and /detokenize, as in vLLM.
package tokens

import (
	"encoding/json"
	"maps"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A body holds the fields of both requests.
type body struct {
	request *chatv1.TokenizeRequest
	special *bool    // add_special_tokens; nil if absent
	tokens  []uint32 // to detokenize; nil if absent
}

type setter = func(b *body, param string, raw json.RawMessage) error

func setModel(b *body, param string, raw json.RawMessage) (err error) {
	b.request.Model, err = strict.String(param, raw)
	return err
}

// tokenize are the fields that a chat does not have, and the model, which may be missing here.
var tokenize = map[string]setter{
	"model": setModel,
	"prompt": func(b *body, param string, raw json.RawMessage) (err error) {
		b.request.Text, err = strict.String(param, raw)
		return err
	},
	"add_special_tokens": func(b *body, param string, raw json.RawMessage) error {
		add, err := strict.Boolean(param, raw)
		b.special = &add
		return err
	},
	"return_token_strs": func(b *body, param string, raw json.RawMessage) (err error) {
		b.request.Strings, err = strict.Boolean(param, raw)
		return err
	},
}

var detokenize = map[string]setter{
	"model": setModel,
	"tokens": func(b *body, param string, raw json.RawMessage) (err error) {
		b.tokens, err = strict.IDs(param, raw)
		return err
	},
}

// ParseTokenize parses the body of POST /tokenize: a prompt, to which special tokens are added
// unless the body says otherwise, or a chat, which the chat template renders. Its errors are
// *streamerr.Error with reason INVALID, whose Param is the invalid field.
func ParseTokenize(data []byte, in *strict.Reading) (*chatv1.TokenizeRequest, error) {
	fields, err := strict.Fields(data)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(fields, func(_ string, raw json.RawMessage) bool { return strict.Null(raw) })
	_, text := fields["prompt"]
	chat := !strict.Empty(fields["messages"])
	switch {
	case text && chat:
		return nil, streamerr.InvalidParam("prompt", "the request has both messages and a prompt; leave one of them out")
	case !text && !chat:
		return nil, streamerr.InvalidParam("prompt", "the request has neither messages nor a prompt").WithCode(streamerr.CodeMissing)
	}
	b := &body{request: &chatv1.TokenizeRequest{AddSpecial: text}}
	if chat {
		own := map[string]json.RawMessage{}
		for name := range tokenize {
			if raw, ok := fields[name]; ok {
				own[name] = raw
				delete(fields, name)
			}
		}
		if err := b.render(fields, in); err != nil {
			return nil, err
		}
		fields = own
	}
	if err := strict.Each(fields, b, in, tokenize); err != nil {
		return nil, err
	}
	if b.special != nil {
		b.request.AddSpecial = *b.special
	}
	return b.request, nil
}

// render parses the fields of a chat. Those that do not shape its prompt have no effect.
func (b *body) render(fields map[string]json.RawMessage, in *strict.Reading) error {
	chat, images, err := openai.ParsePrompt(fields, in)
	switch {
	case err != nil:
		return err
	case len(images) > 0:
		return image.Uncounted(images[0])
	}
	b.request.Messages, b.request.Tools, b.request.ToolChoice = chat.GetMessages(), chat.GetTools(), chat.GetToolChoice()
	b.request.TemplateVariables, b.request.ContinueMessage = chat.GetTemplateVariables(), chat.GetContinueMessage()
	b.request.AddGenerationPrompt = !chat.GetNoGenerationPrompt() && !chat.GetContinueMessage()
	return nil
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
