// Package ollama is the JSON of Ollama's API: its chats and completions, vectors, and the list of
// models.
//
// Fields are read as in package openai, and conversations and tools by its package conversation. A
// stream is lines of JSON instead of events, and is the default. Its last line has "done": true; a
// failed stream ends with a line that has an error.
package ollama

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/openai/conversation"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxLogprobs is the maximum number of alternatives of a token.
const maxLogprobs = 20

// A body is a body of POST /api/chat or /api/generate.
type body struct {
	in        *strict.Reading
	request   *chatv1.ChatRequest
	model     string // as the client wrote it
	stream    bool
	unloads   bool // keep_alive is 0
	logprobs  bool
	top       uint32
	tools     conversation.Tools
	images    []image.Source
	variables map[string]any // of the template

	// Of /api/generate.
	generates      bool
	raw            bool
	prompt, system string
	pictures       json.RawMessage
}

type setter = strict.Setter[*body]

// shared are the fields of both kinds of bodies.
var shared = strict.Table[*body]{Honoured: map[string]setter{
	"model": func(b *body, param string, raw json.RawMessage) (err error) {
		b.model, err = strict.String(param, raw)
		b.request.Model = untagged(b.model)
		return err
	},
	"stream": func(b *body, param string, raw json.RawMessage) (err error) {
		b.stream, err = strict.Boolean(param, raw)
		return err
	},
	"format":  setFormat,
	"think":   setThink,
	"options": setOptions,
	// Models stay loaded. Without a prompt, 0 asks to unload the model.
	"keep_alive": func(b *body, param string, raw json.RawMessage) error {
		b.unloads = unloading.Match(raw)
		if !b.unloads {
			b.in.Ignore(param)
		}
		return nil
	},
	"logprobs": func(b *body, param string, raw json.RawMessage) (err error) {
		b.logprobs, err = strict.Boolean(param, raw)
		return err
	},
	"top_logprobs": func(b *body, param string, raw json.RawMessage) error {
		n, err := strict.Integer(param, raw, 0, maxLogprobs)
		b.top = uint32(n)
		return err
	},
}, Ignored: []string{"shift", "truncate"}}

// unloading matches the values of keep_alive that mean no time.
var unloading = regexp.MustCompile(`^"?0(\.0+)?(ns|us|ms|s|m|h)?"?$`)

var chatFields = shared.And(strict.Table[*body]{Honoured: map[string]setter{
	"messages": func(b *body, param string, raw json.RawMessage) error {
		parsed, err := conversation.Parse(b.in, param, raw)
		if err == nil {
			b.request.Messages, b.images = parsed.Messages, parsed.Images
		}
		return err
	},
	"tools": func(b *body, param string, raw json.RawMessage) error {
		err := b.tools.Add(b.in, param, raw)
		b.request.Tools = b.tools.List
		return err
	},
}})

var generateFields = shared.And(strict.Table[*body]{Honoured: map[string]setter{
	"prompt": func(b *body, param string, raw json.RawMessage) (err error) {
		b.prompt, err = strict.String(param, raw)
		return err
	},
	"system": func(b *body, param string, raw json.RawMessage) (err error) {
		b.system, err = strict.String(param, raw)
		return err
	},
	"raw": func(b *body, param string, raw json.RawMessage) (err error) {
		b.raw, err = strict.Boolean(param, raw)
		return err
	},
	"images": func(b *body, _ string, raw json.RawMessage) error {
		b.pictures = raw // parsed once the form of the prompt is known
		return nil
	},
}, Unsupported: []string{"context"}, Refused: map[string]string{
	"suffix":   "is text after the answer, which no model here takes into account",
	"template": "replaces the template of the model, which requests cannot do here",
}})

// ChatFields returns how each field of /api/chat is treated, and GenerateFields how each of
// /api/generate.
func ChatFields() map[string]string { return chatFields.Fields() }

// GenerateFields is ChatFields for /api/generate.
func GenerateFields() map[string]string { return generateFields.Fields() }

// ParseChat parses a body of /api/chat. Its errors are *streamerr.Error with reason INVALID, whose
// Param is the invalid field. A body without messages only asks to load its model, or to unload it.
func ParseChat(text []byte, in *strict.Reading) (*call.Call, error) {
	b, err := parse(text, &chatFields, in)
	if err != nil {
		return nil, err
	}
	if all := b.request.GetMessages(); len(all) > 0 {
		last := all[len(all)-1]
		b.request.ContinueMessage = last.GetRole() == "assistant" && last.GetContent() != "" && len(last.GetToolCalls()) == 0
	}
	return b.call(len(b.request.GetMessages()) == 0), nil
}

// ParseGenerate parses a body of /api/generate, like ParseChat. A prompt becomes a conversation of
// one turn, unless it is raw.
func ParseGenerate(text []byte, in *strict.Reading) (*call.Call, error) {
	b, err := parse(text, &generateFields, in)
	if err != nil {
		return nil, err
	}
	b.generates = true
	idle := b.prompt == "" && strict.Empty(b.pictures)
	if !idle {
		err = b.ask()
	}
	return b.call(idle), err
}

func parse(text []byte, table *strict.Table[*body], in *strict.Reading) (*body, error) {
	fields, err := strict.Fields(text)
	if err != nil {
		return nil, err
	}
	b := &body{in: in, request: &chatv1.ChatRequest{Sampling: &llmv1.Sampling{}}, stream: true, variables: map[string]any{}}
	if err := table.Parse(fields, b, in); err != nil {
		return nil, err
	}
	if b.model == "" {
		return nil, streamerr.InvalidParam("model", "model is required").WithCode(streamerr.CodeMissing)
	}
	if b.logprobs {
		b.request.Sampling.Logprobs = &b.top
	} else if b.top > 0 {
		in.Ignore("top_logprobs")
	}
	if len(b.variables) > 0 {
		b.request.TemplateVariables = string(marshal(b.variables))
	}
	return b, nil
}

// ask makes the request of a prompt.
func (b *body) ask() error {
	pictures, err := image.List("images", b.pictures)
	if err != nil {
		return err
	}
	b.images = pictures
	if b.raw {
		if b.system != "" {
			return streamerr.InvalidParam("system", "a raw prompt is the whole prompt, and has no system: leave out system, or raw")
		}
		prompt := &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: b.prompt}}
		for _, source := range pictures {
			prompt.Images = append(prompt.Images, source.To)
		}
		b.request.Prompts, b.request.TemplateVariables = []*chatv1.Prompt{prompt}, ""
		return nil
	}
	if b.system != "" {
		b.request.Messages = append(b.request.Messages, &chatv1.Message{Role: "system", Content: b.system})
	}
	turn := &chatv1.Message{Role: "user", Content: b.prompt}
	for _, source := range pictures {
		turn.Images = append(turn.Images, &chatv1.PlacedImage{Image: source.To})
	}
	b.request.Messages = append(b.request.Messages, turn)
	return nil
}

// call returns the call of a body. A body is idle without a prompt.
func (b *body) call(idle bool) *call.Call {
	c := &call.Call{Request: b.request, Images: b.images, Stream: b.stream, Param: b.param, Events: b.events, Whole: b.whole}
	if idle {
		c.Loaded = b.loaded
	} else if b.unloads {
		b.in.Ignore("keep_alive")
	}
	return c
}

// untagged returns a model's name without the tag that Ollama adds to names without one.
func untagged(name string) string { return strings.TrimSuffix(name, latest) }

const latest = ":latest"

// anyObject is the schema of the format "json".
const anyObject = `{"type":"object"}`

// setFormat parses the form of the answer: "json", or a schema.
func setFormat(b *body, param string, raw json.RawMessage) error {
	schema := anyObject
	if raw[0] == '"' {
		switch word, err := strict.String(param, raw); {
		case err != nil:
			return err
		case word == "":
			return nil
		case word != "json":
			return streamerr.InvalidParam(param, "%s is %q; it must be json, or a JSON schema", param, strict.Printable(word))
		}
	} else {
		var err error
		if schema, err = strict.Compact(param, raw); err != nil {
			return err
		}
	}
	b.request.Sampling.Guide = &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: schema}}}
	return nil
}

// setThink parses whether the model thinks before it answers, or how much.
func setThink(b *body, param string, raw json.RawMessage) error {
	if raw[0] != '"' {
		think, err := strict.Boolean(param, raw)
		b.variables["enable_thinking"] = think
		return err
	}
	effort, err := strict.String(param, raw)
	if err != nil || effort == "" {
		return err
	}
	if known, err := b.in.Hint(param, effort, "none", "minimal", "low", "medium", "high", "xhigh", "max"); err != nil || !known {
		return err
	}
	b.variables["enable_thinking"], b.variables["reasoning_effort"] = effort != "none", effort
	return nil
}

// outer maps field names of the IDL to names of the body. The names of options follow from theirs.
var outer = map[string]string{
	"sampling.guide": "format", "template_variables": "think", "continue_message": "messages", "stop": "options.stop",
}

// param converts a field name of the IDL, which an inner hop uses in its errors, to its name in the
// body.
func (b *body) param(inner string) string {
	if name, ok := outer[inner]; ok {
		return name
	}
	if option, ok := optionOf[strings.TrimPrefix(inner, "sampling.")]; ok {
		return "options." + option
	}
	switch {
	case strings.HasPrefix(inner, "stop["):
		return "options." + inner
	case inner == "sampling.logprobs" && b.top > 0:
		return "top_logprobs"
	case inner == "sampling.logprobs":
		return "logprobs"
	case inner == "images" && b.generates:
		return "images"
	case inner == "images" || inner == "prompt" && !b.generates:
		return "messages"
	case b.generates && (strings.HasPrefix(inner, "messages") || strings.HasPrefix(inner, "prompt")):
		return "prompt"
	}
	return conversation.Param(inner)
}

func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: structs of strings and numbers
	}
	return text
}
