package prompt

import (
	"encoding/json"
	"strings"

	"github.com/whence-dev/whence/chat-service/prompt/jinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Request is what a server that renders conversations and parses answers itself must know beside the
// conversation.
type Request struct {
	MaxTokens *uint32
	Choice    *chatv1.ToolChoice
	Parallel  *bool // parallel_tool_calls
}

// An unrenderedConversation is the value of TokenRequest.conversation (worker.v1) for a server that
// renders it with its own template.
type unrenderedConversation struct {
	shownConversation
	MaxTokens *uint32 `json:"max_tokens,omitempty"`
	Choice    any     `json:"tool_choice,omitempty"` // "none", "required" or a namedTool
	Parallel  *bool   `json:"parallel_tool_calls,omitempty"`
}

type namedTool struct {
	Type     string        `json:"type"`
	Function shownFunction `json:"function"`
}

// Unrendered checks a conversation, and returns it as the client has sent it, as the value of
// TokenRequest.conversation.
func Unrendered(in Input, of Request) (string, error) {
	if err := check(in.Messages, jinja.MaxOutput); err != nil {
		return "", err
	}
	if _, err := readTools(in.Tools, false); err != nil {
		return "", err
	}
	c := unrenderedConversation{MaxTokens: of.MaxTokens}
	if in.Variables != "" {
		if err := setVariables(map[string]jinja.Value{}, in.Variables); err != nil {
			return "", err
		}
		c.Variables = json.RawMessage(in.Variables)
	}
	if c.Continues = in.Continue; !in.AddGenerationPrompt {
		c.Opens = new(false)
	}
	for _, m := range in.Messages {
		c.Messages = append(c.Messages, show(m, Form{NoContent: true}))
	}
	for _, tool := range in.Tools {
		function := shownFunction{Name: tool.GetName(), Parameters: json.RawMessage(tool.GetParameters())}
		if text := tool.GetDescription(); text != "" {
			function.Description = &text
		}
		c.Tools = append(c.Tools, shownTool{Type: "function", Function: function})
	}
	if len(in.Tools) > 0 {
		c.Parallel = of.Parallel
	}
	var err error
	if c.Choice, err = choiceOf(of.Choice, in.Tools); err != nil {
		return "", err
	}
	return encode(c)
}

// choiceOf returns tool_choice in OpenAI's form; nil stands for "auto".
func choiceOf(c *chatv1.ToolChoice, tools []*chatv1.Tool) (any, error) {
	switch {
	case c.GetMode() == chatv1.ToolMode_TOOL_MODE_REQUIRED && len(tools) == 0:
		return nil, streamerr.InvalidParam("tool_choice", "tool_choice requires a tool call, but the request has no tools")
	case len(tools) == 0:
		return nil, nil
	case c.GetMode() == chatv1.ToolMode_TOOL_MODE_NONE:
		return "none", nil
	case c.GetMode() != chatv1.ToolMode_TOOL_MODE_REQUIRED:
		return nil, nil
	case c.GetName() == "":
		return "required", nil
	}
	for _, tool := range tools {
		if tool.GetName() == c.GetName() {
			return namedTool{"function", shownFunction{Name: c.GetName()}}, nil
		}
	}
	return nil, streamerr.InvalidParam("tool_choice", "tool_choice names %.80q, but no tool has this name", c.GetName())
}

// encode returns a value as JSON.
func encode(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // escaping would spend six bytes on each of the many < and >
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// Raw returns the value of TokenRequest.conversation for a prompt without a conversation.
func Raw(text string, maxTokens *uint32) (string, error) {
	return encode(struct {
		Prompt    string  `json:"prompt"`
		MaxTokens *uint32 `json:"max_tokens,omitempty"`
	}{text, maxTokens})
}
