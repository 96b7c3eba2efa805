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
	example := hermesCall
	if t.Around != nil {
		before, after := t.Around("…")
		example = before + "{…}" + after
	}
	content.text.WriteString(toolsAfter + cmp.Or(t.traits.Written.example(), example))
	turn := &chatv1.Message{Role: roleSystem}
	content.into(turn)
	in.Messages, in.Tools = append([]*chatv1.Message{turn}, rest...), nil
	return in
}

// spelled returns a conversation in which the assistant's turns contain calls as text. Results of
// calls stay turns for a template that describes tools and writes results, and drops only the calls.
// For others, the results of the calls of one turn are one turn of the user.
func (t *Template) spelled(conversation []*chatv1.Message) []*chatv1.Message {
	return spelled(conversation, t.Around, t.traits.Tools && t.traits.Results)
}

func spelled(conversation []*chatv1.Message, around func(tool string) (before, after string), results bool) []*chatv1.Message {
	messages := make([]*chatv1.Message, 0, len(conversation))
	var answers passage
	answered := func() {
		if answers.text.Len() > 0 {
			turn := &chatv1.Message{Role: roleUser}
			answers.into(turn)
			messages, answers = append(messages, turn), passage{}
		}
	}
	for _, m := range conversation {
		if m.GetRole() == roleTool && !results {
			if answers.text.Len() > 0 {
				answers.text.WriteString("\n")
			}
			answers.text.WriteString("<tool_response>\n")
			answers.add(m, same)
			answers.text.WriteString("\n</tool_response>")
			continue
		}
		answered()
		if len(m.GetToolCalls()) > 0 {
			c := copyOf(m)
			var content passage
			content.add(m, same)
			spell(m, around, &content.text)
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
func spell(m *chatv1.Message, around func(tool string) (before, after string), text *strings.Builder) {
	for _, call := range m.GetToolCalls() {
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		before, after := "<tool_call>\n{\"name\": "+quote(call.GetName())+", \"arguments\": ", "}\n</tool_call>"
		if around != nil {
			before, after = around(call.GetName())
		}
		arguments, _ := objectOf(call.GetArguments())
		text.WriteString(before + arguments + after)
	}
}

func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // every string has a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}
