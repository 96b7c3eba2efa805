package prompt

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/whence-dev/whence/chat-service/prompt/jinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Images returns the images of a conversation in order.
func Images(messages []*chatv1.Message) (all []*llmv1.Image) {
	for _, m := range messages {
		for _, placed := range m.GetImages() {
			all = append(all, placed.GetImage())
		}
	}
	return all
}

// checkImages refuses images that are not within the content of their message, or out of order.
func checkImages(at string, m *chatv1.Message) error {
	last := 0
	for i, placed := range m.GetImages() {
		offset, content := int(placed.GetOffset()), m.GetContent()
		inside := offset < len(content) && !utf8.RuneStart(content[min(offset, len(content)-1)])
		if placed.GetImage() == nil || offset < last || offset > len(content) || inside {
			field := fmt.Sprintf("%s.images[%d]", at, i)
			return streamerr.InvalidParam(field, "%s has no image, or its place is not between two characters of the content", field)
		}
		last = offset
	}
	return nil
}

// parts yields the texts and the images of a message's content in order. The text of an image is
// "".
func parts(m *chatv1.Message) iter.Seq2[string, *chatv1.PlacedImage] {
	return func(yield func(string, *chatv1.PlacedImage) bool) {
		content, done := m.GetContent(), 0
		for _, placed := range m.GetImages() {
			if text := content[done:placed.GetOffset()]; text != "" && !yield(text, nil) {
				return
			}
			if done = int(placed.GetOffset()); !yield("", placed) {
				return
			}
		}
		if text := content[done:]; text != "" {
			yield(text, nil)
		}
	}
}

// contentParts returns the content of a message with images, or with reasoning as a part of the
// content, in the form that templates expect.
func contentParts(m *chatv1.Message, reasoning string) jinja.Value {
	items := []jinja.Value{}
	if reasoning != "" {
		part := jinja.NewDict()
		part.Set("type", "thinking")
		part.Set("thinking", reasoning)
		items = append(items, part)
	}
	for text, image := range parts(m) {
		part := jinja.NewDict()
		if image != nil {
			part.Set("type", "image")
		} else {
			part.Set("type", "text")
			part.Set("text", text)
		}
		items = append(items, part)
	}
	return jinja.NewList(items...)
}

// A shownConversation is a conversation in OpenAI's JSON, for engines that render it themselves.
type shownConversation struct {
	Messages  []shownMessage  `json:"messages"`
	Tools     []shownTool     `json:"tools,omitempty"`
	Variables json.RawMessage `json:"chat_template_kwargs,omitempty"`
	// Opens is false if the answer continues the last message, and otherwise missing, as true.
	Opens     *bool `json:"add_generation_prompt,omitempty"`
	Continues bool  `json:"continue_final_message,omitempty"`
}

type shownMessage struct {
	Role       string      `json:"role"`
	Content    any         `json:"content"` // a string, []shownPart, or null
	Name       string      `json:"name,omitempty"`
	Reasoning  string      `json:"reasoning,omitempty"`
	Reasoned   string      `json:"reasoning_content,omitempty"` // the older name of reasoning
	ToolCalls  []shownTool `json:"tool_calls,omitempty"`
	ToolCallID string      `json:"tool_call_id,omitempty"`
}

type shownPart struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
}

// A shownTool is a tool or a tool call.
type shownTool struct {
	ID       string        `json:"id,omitempty"`
	Type     string        `json:"type"`
	Function shownFunction `json:"function"`
}

type shownFunction struct {
	Name        string          `json:"name"`
	Description *string         `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Arguments   *string         `json:"arguments,omitempty"`
}

// Conversation returns the value of TokenRequest.conversation (worker.v1) for a conversation that
// Render accepts. An engine that renders it with the same template gets the same prompt.
func (t *Template) Conversation(ctx context.Context, in Input) (string, error) {
	_, in, err := t.render(ctx, in)
	if err != nil {
		return "", err
	}
	c := shownConversation{Variables: json.RawMessage(in.Variables), Continues: in.Continue}
	if in.Continue {
		c.Opens = new(false)
	}
	for _, m := range in.Messages {
		c.Messages = append(c.Messages, show(m, t.traits.Form))
	}
	for _, tool := range in.Tools {
		function := shownFunction{Name: tool.GetName(), Parameters: json.RawMessage(tool.GetParameters())}
		if text := tool.GetDescription(); text != "" || t.traits.Form.WholeTools {
			function.Description = &text
		}
		if len(function.Parameters) == 0 && t.traits.Form.WholeTools {
			function.Parameters = json.RawMessage(noParameters)
		}
		c.Tools = append(c.Tools, shownTool{Type: "function", Function: function})
	}
	return encode(c)
}

// show converts a message to OpenAI's JSON.
func show(m *chatv1.Message, form Form) shownMessage {
	shown := shownMessage{
		Role: m.GetRole(), Content: m.GetContent(), Name: m.GetName(), Reasoning: m.GetReasoning(), Reasoned: m.GetReasoning(), ToolCallID: m.GetToolCallId(),
	}
	switch {
	case len(m.GetImages()) > 0:
		var all []shownPart
		for text, image := range parts(m) {
			if image != nil {
				all = append(all, shownPart{Type: "image"})
			} else {
				all = append(all, shownPart{Type: "text", Text: text})
			}
		}
		shown.Content = all
	case m.GetContent() == "" && len(m.GetToolCalls()) > 0 && form.NoContent:
		shown.Content = nil
	}
	for _, call := range m.GetToolCalls() {
		arguments, _ := objectOf(call.GetArguments()) // engines parse it as an object, too
		shown.ToolCalls = append(shown.ToolCalls, shownTool{ID: call.GetId(), Type: "function", Function: shownFunction{Name: call.GetName(), Arguments: &arguments}})
	}
	return shown
}
