package prompt

import (
	"cmp"
	"encoding/json"
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// The description of tools for models whose template has none.
const (
	toolsBefore = "You may call functions. They are, one a line:\n<tools>\n"
	toolsAfter  = "</tools>\nTo call one, answer:\n"
	// hermesCall is a call in the Hermes format, in which Qwen and other models were trained.
	hermesCall = "<tool_call>\n{\"name\": \"…\", \"arguments\": {…}}\n</tool_call>"
)

// described rewrites a conversation for a template that does not describe tools: the turn of the
// system describes them, and shows a call as the template writes calls, or in the Hermes format.
func (t *Template) described(in Input) Input {
	rest := in.Messages
	var content passage
	if instructs(rest[0]) {
		content.add(rest[0], same)
		content.text.WriteString("\n\n")
		rest = rest[1:]
	}
	content.text.WriteString(toolsBefore)
	for _, tool := range in.Tools {
		content.text.WriteString(signature(tool) + "\n")
	}
	content.text.WriteString(toolsAfter + cmp.Or(t.traits.Written.example(), hermesCall))
	turn := &chatv1.Message{Role: roleSystem}
	content.into(turn)
	in.Messages, in.Tools = append([]*chatv1.Message{turn}, rest...), nil
	return in
}

// spelled returns a conversation in which the assistant's turns contain calls as text, and the
// results of the calls of one turn are one turn of the user.
func spelled(conversation []*chatv1.Message) []*chatv1.Message {
	messages := make([]*chatv1.Message, 0, len(conversation))
	var results passage
	answered := func() {
		if results.text.Len() > 0 {
			turn := &chatv1.Message{Role: roleUser}
			results.into(turn)
			messages, results = append(messages, turn), passage{}
		}
	}
	for _, m := range conversation {
		if m.GetRole() == roleTool {
			if results.text.Len() > 0 {
				results.text.WriteString("\n")
			}
			results.text.WriteString("<tool_response>\n")
			results.add(m, same)
			results.text.WriteString("\n</tool_response>")
			continue
		}
		answered()
		if len(m.GetToolCalls()) > 0 {
			c := copyOf(m)
			var content passage
			content.add(m, same)
			spell(m, &content.text)
			content.into(c)
			c.ToolCalls, m = nil, c
		}
		messages = append(messages, m)
	}
	answered()
	return messages
}

// signature returns the description of a tool in one line.
func signature(tool *chatv1.Tool) string {
	s := `{"name": ` + quote(tool.GetName())
	if tool.GetDescription() != "" {
		s += `, "description": ` + quote(Clean(tool.GetDescription()))
	}
	if tool.GetParameters() != "" {
		s += `, "parameters": ` + Clean(tool.GetParameters())
	}
	return s + "}"
}

// spell adds the calls of a turn to its text, as the model would have written them.
func spell(m *chatv1.Message, text *strings.Builder) {
	for _, call := range m.GetToolCalls() {
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		arguments, _ := objectOf(call.GetArguments())
		text.WriteString("<tool_call>\n{\"name\": " + quote(call.GetName()) + ", \"arguments\": " + arguments + "}\n</tool_call>")
	}
}

func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // every string has a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}
