// Package sglang is the JSON of SGLang's native POST /generate.
//
// Fields are read as in package openai. As in SGLang, the text in an event is the whole answer
// so far: a reader needs only the last event, and a long answer costs the square of its length.
package sglang

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	defaultMaxTokens = 128
	maxLogprobs      = 20
)

// A generate is a body of POST /generate.
type generate struct {
	in         *strict.Reading
	request    *chatv1.ChatRequest
	stream     bool
	batch      bool     // the answer is a list
	rids       []string // one per prompt, or one for the stream
	ridList    bool     // rids has one id per prompt
	logprobs   bool
	top        uint32
	withText   bool   // logprobs include the text of tokens
	adapter    string // instead of the model
	promptName string // name of the field with the prompts
	imageData  json.RawMessage
}

type setter = strict.Setter[*generate]

// generateFields are the fields of a body.
var generateFields = strict.Table[*generate]{Honoured: map[string]setter{
	// Not in SGLang's API: an SGLang serves one model.
	"model": func(g *generate, param string, raw json.RawMessage) (err error) {
		g.request.Model, err = strict.String(param, raw)
		return err
	},
	"lora_path": func(g *generate, param string, raw json.RawMessage) (err error) {
		g.adapter, err = strict.String(param, raw)
		return err
	},
	"text":      setText,
	"input_ids": setIDs,
	"rid":       setRID,
	"sampling_params": func(g *generate, param string, raw json.RawMessage) error {
		if strict.Empty(raw) {
			return nil
		}
		fields, err := strict.Object(param, raw)
		if err != nil {
			return err
		}
		if err := g.spaces(param+"."+spaces, fields[spaces]); err != nil {
			return err
		}
		delete(fields, spaces)
		return sampling.Parse(prefixed(param, fields), g.request, g.in)
	},
	"image_data": func(g *generate, _ string, raw json.RawMessage) error {
		if !strict.Empty(raw) {
			g.imageData = raw // parsed once the prompts are known
		}
		return nil
	},
	"stream": func(g *generate, param string, raw json.RawMessage) (err error) {
		g.stream, err = strict.Boolean(param, raw)
		return err
	},
	"return_logprob": func(g *generate, param string, raw json.RawMessage) (err error) {
		g.logprobs, err = strict.Boolean(param, raw)
		return err
	},
	"top_logprobs_num": func(g *generate, param string, raw json.RawMessage) error {
		n, err := strict.Integer(param, raw, 0, maxLogprobs)
		g.top = uint32(n)
		return err
	},
	"logprob_start_len": func(g *generate, param string, raw json.RawMessage) error {
		start, err := strict.Integer(param, raw, -1, math.MaxInt32)
		if err == nil && start >= 0 {
			err = g.in.Unsupported(param) // log-probabilities of prompts
		}
		return err
	},
	"return_text_in_logprobs": func(g *generate, param string, raw json.RawMessage) (err error) {
		g.withText, err = strict.Boolean(param, raw)
		return err
	},
}, Ignored: []string{
	"background", "bootstrap_host", "bootstrap_pair_key", "bootstrap_port", "bootstrap_room", "conversation_id", "custom_labels", "data_parallel_rank", "extra_key",
	"log_metrics", "modalities", "no_logs", "priority", "routing_key",
}, Unsupported: []string{
	"custom_logit_processor", "lora_id", "return_bytes", "return_entropy", "return_hidden_states", "return_routed_experts", "token_ids_logprob",
}, Refused: map[string]string{
	"audio_data":     "is a part of the prompt that no model here takes",
	"input_embeds":   "is a prompt that no model here takes",
	"session_params": "continues a prompt that the server keeps, and none is kept here: send the whole prompt instead",
	"video_data":     "is a part of the prompt that no model here takes",
}}

// spaces is a sampling parameter whose default alone is honoured.
const spaces = "spaces_between_special_tokens"

func (g *generate) spaces(param string, raw json.RawMessage) error {
	if len(raw) == 0 || strict.Null(raw) {
		return nil
	}
	between, err := strict.Boolean(param, raw)
	if err == nil && !between {
		err = g.in.Unsupported(param)
	}
	return err
}

// perPrompt are the fields that may have a value for each prompt. Here all prompts have the same.
var perPrompt = []string{"logprob_start_len", "lora_path", "return_logprob", "sampling_params", "top_logprobs_num"}

// same returns the value of all elements of an array, if they are equal, or else the array. A value
// that is no array stays as it is.
func same(raw json.RawMessage) json.RawMessage {
	items, err := strict.Array("", raw)
	if err != nil || len(items) == 0 {
		return raw
	}
	for _, item := range items {
		if !bytes.Equal(item, items[0]) {
			return raw
		}
	}
	return items[0]
}

// Fields returns how each field of a body is treated: honoured, ignored or refused.
func Fields() map[string]string { return generateFields.Fields() }

// prefixed returns the fields of an object under their full paths.
func prefixed(param string, fields map[string]json.RawMessage) map[string]json.RawMessage {
	named := make(map[string]json.RawMessage, len(fields))
	for name, raw := range fields {
		named[param+"."+name] = raw
	}
	return named
}

// Parse parses a body. Its errors are *streamerr.Error with reason INVALID, whose Param is the invalid field.
func Parse(body []byte, in *strict.Reading) (*call.Call, error) {
	fields, err := strict.Fields(body)
	if err != nil {
		return nil, err
	}
	for _, name := range perPrompt {
		if raw, ok := fields[name]; ok && raw[0] == '[' {
			fields[name] = same(raw)
		}
	}
	g := &generate{in: in, request: &chatv1.ChatRequest{Sampling: &llmv1.Sampling{}}}
	if err := generateFields.Parse(fields, g, in); err != nil {
		return nil, err
	}
	if g.adapter != "" {
		g.request.Model = g.adapter
	}
	if len(g.request.GetPrompts()) == 0 {
		return nil, streamerr.InvalidParam("text", "there is neither text nor input_ids").WithCode(streamerr.CodeMissing)
	}
	if err := g.readRIDs(); err != nil {
		return nil, err
	}
	images, err := g.images()
	if err != nil {
		return nil, err
	}
	if g.logprobs {
		g.request.Sampling.Logprobs = &g.top
	}
	g.batch = g.batch || g.request.GetN() > 1
	byDefault := g.request.GetSampling().MaxTokens == nil
	if byDefault {
		g.request.Sampling.MaxTokens = new(uint32(defaultMaxTokens))
	}
	c := &call.Call{Request: g.request, Images: images, DefaultTokens: byDefault, Stream: g.stream, Param: g.param, Events: g.events, Whole: g.whole}
	if len(g.rids) > 0 && !g.ridList {
		c.ID = g.rids[0]
	}
	return c, nil
}

// readRIDs leaves out ids that cannot name the stream, or its answers: an id must not keep a request
// from its answer, and the client is told the id that the stream has instead.
func (g *generate) readRIDs() error {
	usable := !g.ridList || len(g.rids) == call.Choices(g.request)
	for i, rid := range g.rids {
		usable = usable && stream.ValidID(rid) && !slices.Contains(g.rids[:i], rid)
	}
	if usable {
		return nil
	}
	g.rids, g.ridList = nil, false
	return g.in.Unsupported("rid")
}

func setText(g *generate, param string, raw json.RawMessage) error {
	if strict.Empty(raw) && g.promptName != "" {
		return nil
	}
	texts, err := strict.Strings(param, raw)
	if err == nil {
		err = call.CheckPrompts(param, len(texts))
	}
	if err != nil {
		return err
	}
	for _, text := range texts {
		g.request.Prompts = append(g.request.Prompts, &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: text}})
	}
	return g.prompts(param, raw[0] == '[')
}

// setIDs parses an array of token ids, or an array of such arrays.
func setIDs(g *generate, param string, raw json.RawMessage) error {
	if strict.Empty(raw) {
		return nil
	}
	if raw[0] != '[' {
		return strict.Mismatch(param, "an array of token ids, or an array of such", raw)
	}
	items := []json.RawMessage{raw}
	several := bytes.TrimLeft(raw[1:], " \t\r\n")[0] == '['
	if several {
		var err error
		if items, err = strict.Array(param, raw); err == nil {
			err = call.CheckPrompts(param, len(items))
		}
		if err != nil {
			return err
		}
	}
	for i, item := range items {
		at := param
		if several {
			at = fmt.Sprintf("%s[%d]", param, i)
		}
		ids, err := strict.IDs(at, item)
		if err != nil {
			return err
		}
		g.request.Prompts = append(g.request.Prompts, &chatv1.Prompt{Content: &chatv1.Prompt_Ids{Ids: &chatv1.TokenIDs{Ids: ids}}})
	}
	return g.prompts(param, several)
}

// prompts records which field holds the prompts.
func (g *generate) prompts(param string, batch bool) error {
	if g.promptName != "" {
		return streamerr.InvalidParam(param, "the request has both %s and %s; leave one of them out", g.promptName, param)
	}
	g.promptName, g.batch = param, batch
	return nil
}

func setRID(g *generate, param string, raw json.RawMessage) (err error) {
	if strict.Empty(raw) {
		return nil
	}
	g.ridList = raw[0] == '['
	g.rids, err = strict.Strings(param, raw)
	return err
}

// param converts a field name of the IDL, which an inner hop uses in its errors, to its name in the
// body.
func (g *generate) param(inner string) string {
	if name, ok := outer[inner]; ok {
		return name
	}
	switch {
	case inner == "stream_id" && len(g.rids) > 0:
		return "rid"
	case strings.HasPrefix(inner, "stop["):
		return "sampling_params." + inner
	case strings.HasPrefix(inner, "prompt"):
		return g.promptName + strings.TrimPrefix(inner, "prompt")
	}
	return inner
}
