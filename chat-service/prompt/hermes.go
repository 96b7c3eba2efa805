package prompt

import (
	"encoding/json"
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// The description of tools for models whose template has none. It uses the shortest version of the
// Hermes format, in which Qwen and other models were trained.
const (
	toolsBefore = "You may call functions. They are, one a line:\n<tools>\n"
	toolsAfter  = "</tools>\nTo call one, answer:\n<tool_call>\n{\"name\": \"…\", \"arguments\": {…}}\n</tool_call>"
)

// hermes rewrites a conversation for a template without tools: the system's turn describes the
// tools, the assistant's turns contain calls as text, and results of calls become user turns.
func hermes(in Input) Input {
	var system strings.Builder
	messages := make([]*chatv1.Message, 0, len(in.Messages)+1)
	rest := in.Messages
	if len(in.Tools) > 0 {
		if r := rest[0].GetRole(); r == "system" || r == "developer" {
			system.WriteString(rest[0].GetContent() + "\n\n")
			rest = rest[1:]
		}
		system.WriteString(toolsBefore)
		for _, tool := range in.Tools {
			system.WriteString(signature(tool) + "\n")
		}
		system.WriteString(toolsAfter)
		messages = append(messages, &chatv1.Message{Role: "system", Content: system.String()})
	}
	var results results // of the calls of one turn
	answered := func() {
		if results.any {
			messages = append(messages, results.turn())
		}
	}
	for _, m := range rest {
		if m.GetRole() == "tool" {
			results.add(m)
			continue
		}
		answered()
		if len(m.GetToolCalls()) > 0 {
			m = &chatv1.Message{Role: m.GetRole(), Content: spell(m), Name: m.GetName(), Reasoning: m.GetReasoning()}
		}
		messages = append(messages, m)
	}
	answered()
	in.Messages, in.Tools = messages, nil
	return in
}

// results collects the results of the calls of one turn, which become one turn of the user.
type results struct {
	any    bool
	text   strings.Builder
	images []*chatv1.PlacedImage
}

func (r *results) add(m *chatv1.Message) {
	if r.any {
		r.text.WriteByte('\n')
	}
	r.any = true
	r.text.WriteString("<tool_response>\n")
	for _, placed := range m.GetImages() {
		r.images = append(r.images, &chatv1.PlacedImage{Image: placed.GetImage(), Offset: uint32(r.text.Len()) + placed.GetOffset()}) //nolint:gosec // a conversation is smaller
	}
	r.text.WriteString(m.GetContent() + "\n</tool_response>")
}

// turn returns the turn, and resets r.
func (r *results) turn() *chatv1.Message {
	m := &chatv1.Message{Role: "user", Content: r.text.String(), Images: r.images}
	*r = results{}
	return m
}

// signature returns the description of a tool in one line.
func signature(tool *chatv1.Tool) string {
	s := `{"name": ` + quote(tool.GetName())
	if tool.GetDescription() != "" {
		s += `, "description": ` + quote(tool.GetDescription())
	}
	if tool.GetParameters() != "" {
		s += `, "parameters": ` + tool.GetParameters()
	}
	return s + "}"
}

// spell returns the text of a turn with calls, as the model would have written it.
func spell(m *chatv1.Message) string {
	var parts []string
	if m.GetContent() != "" {
		parts = append(parts, m.GetContent())
	}
	for _, call := range m.GetToolCalls() {
		parts = append(parts, "<tool_call>\n{\"name\": "+quote(call.GetName())+", \"arguments\": "+call.GetArguments()+"}\n</tool_call>")
	}
	return strings.Join(parts, "\n")
}

func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // every string has a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}
