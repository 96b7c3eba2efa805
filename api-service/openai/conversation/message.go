// Package conversation parses conversations in OpenAI's JSON: messages, tools, and the tool choice.
//
// Fields are read as in package openai, whose requests contain conversations. One odd message does
// not end a conversation: what can be converted is, and a note takes the place of the rest.
package conversation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Conversation is a parsed conversation.
type Conversation struct {
	Messages []*chatv1.Message
	// Images are the sources of the images, which have not been fetched yet.
	Images []image.Source
	// Continues reports that the answer continues the last message, which has "prefix": true.
	Continues bool

	in   *strict.Reading
	open []*chatv1.ToolCall // calls without a result, oldest first
}

// Parse parses a conversation.
func Parse(in *strict.Reading, param string, raw json.RawMessage) (*Conversation, error) {
	items, err := strict.Array(param, raw)
	if err != nil {
		return nil, err
	}
	c := &Conversation{in: in, Messages: make([]*chatv1.Message, len(items))}
	for i, raw := range items {
		if err := c.add(fmt.Sprintf("%s[%d]", param, i), i, raw); err != nil {
			return nil, err
		}
	}
	return c, nil
}

var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// read are the fields of messages that have a meaning here.
var read = map[string]bool{
	"role": true, "content": true, "name": true, "tool_calls": true, "function_call": true, "tool_call_id": true,
	"reasoning_content": true, "reasoning": true, "refusal": true, "prefix": true,
	"images": true, "thinking": true, "tool_name": true, // of Ollama
}

// idle are the fields of messages that clients send back from answers, and that no prompt has.
// Their names need no strict reading.
var idle = map[string]bool{
	"annotations": true, "parsed": true, "provider_specific_fields": true, "cache_control": true, "id": true,
	"reasoning_details": true, "thinking_blocks": true, "type": true, "status": true,
}

// add parses a message.
func (c *Conversation) add(param string, number int, raw json.RawMessage) error {
	fields, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	defer strict.Recycle(fields)
	m := &chatv1.Message{}
	c.Messages[number], c.Continues = m, false
	if m.Role, err = strict.Member(param, "role", fields); err != nil {
		return err
	}
	if !slices.Contains(roles, m.GetRole()) {
		return streamerr.InvalidParam(param+".role", "%s.role is %q; it must be one of %s", param, strict.Printable(m.GetRole()), strings.Join(roles, ", "))
	}
	if err := c.content(param+".content", fields["content"], m); err != nil {
		return err
	}
	maps.DeleteFunc(fields, func(_ string, raw json.RawMessage) bool { return strict.Null(raw) })
	if raw, ok := fields["name"]; ok {
		if m.Name, err = strict.String(param+".name", raw); err != nil {
			return err
		}
	}
	switch m.GetRole() {
	case "assistant":
		err = c.assistant(param, number, fields, m)
	case "tool", "function":
		err = c.result(param, fields, m)
	}
	if raw, ok := fields["images"]; ok && err == nil && (m.GetRole() == "user" || m.GetRole() == "tool") {
		err = c.pictures(param+".images", raw, m)
	}
	if err != nil {
		return err
	}
	return c.rest(param, fields, m)
}

// rest leaves out the fields of a message that have no meaning for its role.
func (c *Conversation) rest(param string, fields map[string]json.RawMessage, m *chatv1.Message) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at, raw := param+"."+strict.Printable(name), fields[name]
		of := "assistant"
		if name == "tool_call_id" || name == "tool_name" || name == "images" && m.GetRole() != "user" {
			of = "tool"
		} else if name == "images" {
			of = "user"
		}
		var err error
		switch {
		case name == "role" || name == "content" || name == "name" || strict.Empty(raw):
		case idle[name]:
			c.in.Ignore(at)
		case name == "audio", read[name] && m.GetRole() != of:
			err = c.in.Unsupported(at)
		case !read[name]:
			err = c.in.Unknown(at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// assistant parses the fields that only messages of assistants have.
func (c *Conversation) assistant(param string, number int, fields map[string]json.RawMessage, m *chatv1.Message) (err error) {
	for _, name := range []string{"reasoning_content", "reasoning", "thinking"} {
		if raw, ok := fields[name]; ok && m.GetReasoning() == "" {
			if m.Reasoning, err = strict.String(param+"."+name, raw); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"reasoning_details", "thinking_blocks"} {
		if m.GetReasoning() == "" {
			if m.Reasoning = thoughts(fields[name]); m.GetReasoning() != "" {
				delete(fields, name) // used
			}
		}
	}
	if raw, ok := fields["refusal"]; ok && m.GetContent() == "" { // the text of a model that refused
		if m.Content, err = strict.String(param+".refusal", raw); err != nil {
			return err
		}
	}
	if raw, ok := fields["prefix"]; ok {
		if c.Continues, err = strict.Boolean(param+".prefix", raw); err != nil {
			return err
		}
	}
	if raw, ok := fields["tool_calls"]; ok {
		if err := c.calls(param+".tool_calls", number, raw, m); err != nil {
			return err
		}
	}
	at := param + ".function_call"
	raw, ok := fields["function_call"]
	if !ok || strict.Empty(raw) {
		return nil
	}
	call, err := c.in.Members(at, raw, "name", "arguments")
	if err != nil {
		return err
	}
	return c.made(at, fmt.Sprintf("call_%d", number), call, m)
}

// thoughts returns the text of reasoning in the form of OpenRouter (reasoning_details) or of LiteLLM
// (thinking_blocks), or "".
func thoughts(raw json.RawMessage) string {
	var blocks []struct {
		Text, Summary string
		Thinking      json.RawMessage
	}
	if len(raw) == 0 || json.Unmarshal(raw, &blocks) != nil {
		return ""
	}
	var all strings.Builder
	for _, b := range blocks {
		all.WriteString(b.Text + b.Summary)
		if text, err := strict.String("", b.Thinking); err == nil {
			all.WriteString(text)
		} else {
			all.WriteString(thoughts(b.Thinking)) // Mistral's form, which has parts
		}
	}
	return all.String()
}

// pictures parses the images that Ollama's messages have beside the content, and shows them before it.
func (c *Conversation) pictures(param string, raw json.RawMessage, m *chatv1.Message) error {
	sources, err := image.List(param, raw)
	if err != nil {
		return err
	}
	c.Images = append(c.Images, sources...)
	placed := make([]*chatv1.PlacedImage, len(sources))
	for i, source := range sources {
		placed[i] = &chatv1.PlacedImage{Image: source.To}
	}
	m.Images = append(placed, m.Images...)
	return nil
}

// maxOpen bounds the calls that wait for a result, because a result without an id is looked up among
// them.
const maxOpen = 256

// result completes the result of a call. A result without an id belongs to the oldest call that has
// no result yet; a result in the older form, or in Ollama's, names the function.
func (c *Conversation) result(param string, fields map[string]json.RawMessage, m *chatv1.Message) (err error) {
	if raw, ok := fields["tool_call_id"]; ok {
		if m.ToolCallId, err = strict.String(param+".tool_call_id", raw); err != nil {
			return err
		}
	}
	named := m.GetRole() == "function"
	if raw, ok := fields["tool_name"]; ok && !strict.Empty(raw) {
		named = true
		if m.Name, err = strict.String(param+".tool_name", raw); err != nil {
			return err
		}
	}
	m.Role = "tool"
	answers := slices.IndexFunc(c.open, func(call *chatv1.ToolCall) bool {
		if m.GetToolCallId() != "" {
			return call.GetId() == m.GetToolCallId()
		}
		return !named || call.GetName() == m.GetName()
	})
	if answers >= 0 {
		m.ToolCallId = c.open[answers].GetId()
		c.open = slices.Delete(c.open, answers, answers+1)
	}
	return nil
}
