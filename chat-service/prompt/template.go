package prompt

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"

	"github.com/whence-dev/whence/chat-service/prompt/hfjinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Template is a compiled chat template. It is safe for concurrent use.
type Template struct {
	compiled *hfjinja.Template
	globals  map[string]jinja.Value // special tokens by name, and the variables that transformers always sets
	// knowsDeveloper means that the source contains the role "developer". Such a template gets the
	// role unchanged. Any other template would write a header that its model has never seen, so it
	// gets "system" instead.
	knowsDeveloper bool
	knowsTools     bool // the source contains "tools"
	knowsImages    bool // the source contains "image"
	source         string
}

// New compiles the source of a chat template. tokens maps template variables, such as "bos_token",
// to the model's special tokens. A token that is not in the map is undefined in the template.
func New(source string, tokens map[string]string) (*Template, error) {
	compiled, err := hfjinja.Compile(source, time.Now)
	if err != nil {
		return nil, err
	}
	t := &Template{
		compiled:       compiled,
		globals:        map[string]jinja.Value{},
		source:         source,
		knowsTools:     strings.Contains(source, "tools"),
		knowsImages:    strings.Contains(source, "image"),
		knowsDeveloper: strings.Contains(source, "'developer'") || strings.Contains(source, `"developer"`),
	}
	set := func(name string, value jinja.Value) {
		if compiled.Mentions(name) {
			t.globals[name] = value
		}
	}
	set("documents", jinja.None())
	for name, token := range tokens {
		set(name, jinja.NewString(token))
	}
	return t, nil
}

// Source returns the source of the template.
func (t *Template) Source() string { return t.source }

// ShowsTools reports whether prompts can describe tools, by the template or in the Hermes format.
func (t *Template) ShowsTools() bool { return t.knowsTools || t.chatML() }

// Render checks the conversation and returns the prompt. Its errors are *streamerr.Error. When ctx's
// stream is stopped, Render soon returns the cause.
func (t *Template) Render(ctx context.Context, in Input) (string, error) {
	if err := check(in.Messages, hfjinja.MaxOutput); err != nil {
		return "", err
	}
	if !t.knowsImages && len(Images(in.Messages)) > 0 {
		return "", streamerr.InvalidParam("messages", "the conversation has an image, and the chat template of the model has no place for images").WithCode(streamerr.CodeUnsupportedValue)
	}
	tools, err := readTools(in.Tools, hfjinja.MaxOutput)
	if err != nil {
		return "", err
	}
	in = t.shown(in)
	if len(in.Tools) == 0 {
		tools = jinja.None()
	}
	vars := make(map[string]jinja.Value, len(t.globals)+3)
	maps.Copy(vars, t.globals)
	if err := setVariables(vars, in.Variables); err != nil {
		return "", err
	}
	if t.knowsTools {
		vars["tools"] = tools
	}
	vars["add_generation_prompt"] = jinja.NewBool(in.AddGenerationPrompt)
	vars["messages"] = t.messages(in.Messages, false)
	text, err := t.compiled.Render(ctx, vars)
	if _, unusable := errors.AsType[*hfjinja.ValueError](err); unusable && called(in.Messages) {
		// some templates, such as DeepSeek's, concatenate arguments and text
		vars["messages"] = t.messages(in.Messages, true)
		text, err = t.compiled.Render(ctx, vars)
	}
	if cause := stream.Cause(ctx); cause != nil && errors.Is(err, cause) {
		return "", streamerr.As(cause)
	}
	if err != nil {
		return "", refusal(err)
	}
	return text, nil
}

// shown returns the input for the template: in the Hermes format if the template has no tools.
func (t *Template) shown(in Input) Input {
	if !t.knowsTools && t.chatML() && (len(in.Tools) > 0 || called(in.Messages)) {
		return hermes(in)
	}
	return in
}

// chatML reports whether the template writes ChatML turns. Models with such turns were trained on
// Hermes tool calls.
func (t *Template) chatML() bool { return strings.Contains(t.source, "<|im_start|>") }

// called reports whether any message has tool calls.
func called(messages []*chatv1.Message) bool {
	return slices.ContainsFunc(messages, func(m *chatv1.Message) bool { return len(m.GetToolCalls()) > 0 })
}

// refusal converts a failure of the template to an error.
func refusal(err error) *streamerr.Error {
	if raised, ok := errors.AsType[*hfjinja.RaisedError](err); ok {
		return &streamerr.Error{
			Reason: streamerr.Invalid, Param: "messages", Message: raised.Message, Cause: err,
		}
	}
	if unusable, ok := errors.AsType[*hfjinja.ValueError](err); ok {
		return &streamerr.Error{
			Reason: streamerr.Invalid, Param: "messages", Cause: err,
			Message: "the model's chat template cannot render this conversation: " + unusable.Message,
		}
	}
	// Some errors of the library quote values, and values are prompts: keep only the text before
	// them.
	detail, _, _ := strings.Cut(err.Error(), " is not callable: ")
	return &streamerr.Error{Reason: streamerr.Internal, Message: "chat template: " + detail, Cause: err}
}

// messages returns the conversation as template values: mappings with role, content, and the other
// fields. The content of a turn with calls but no text is none, as in what clients send back. With
// asText the arguments of calls are strings.
func (t *Template) messages(messages []*chatv1.Message, asText bool) jinja.Value {
	items := make([]jinja.Value, len(messages))
	for i, m := range messages {
		items[i] = jinja.NewDict()
		set := items[i].AsDict().Set
		set("role", jinja.NewString(t.role(m)))
		switch {
		case m.GetContent() == "" && len(m.GetToolCalls()) > 0:
			set("content", jinja.None())
		case len(m.GetImages()) > 0:
			set("content", contentParts(m))
		default:
			set("content", jinja.NewString(m.GetContent()))
		}
		if m.GetName() != "" {
			set("name", jinja.NewString(m.GetName()))
		}
		if m.GetReasoning() != "" {
			set("reasoning_content", jinja.NewString(m.GetReasoning()))
		}
		if m.GetToolCallId() != "" {
			set("tool_call_id", jinja.NewString(m.GetToolCallId()))
		}
		if len(m.GetToolCalls()) > 0 {
			set("tool_calls", calls(m.GetToolCalls(), asText))
		}
	}
	return jinja.NewList(items)
}

// role returns the role of a message under the name that the template knows.
func (t *Template) role(m *chatv1.Message) string {
	if m.GetRole() == "developer" && !t.knowsDeveloper {
		return "system"
	}
	return m.GetRole()
}
