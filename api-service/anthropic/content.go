package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/api-service/transcript"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// A block is an element of a content array.
type block struct {
	in     *strict.Reading
	at     string // its path in the body
	kind   string // "" if the block has no type
	fields map[string]json.RawMessage
}

// blocks parses content: a string, which is one block of text, or an array of blocks and strings.
func blocks(in *strict.Reading, param string, raw json.RawMessage) ([]block, error) {
	words := func(at string, raw json.RawMessage) block {
		return block{in: in, at: at, kind: "text", fields: map[string]json.RawMessage{"text": raw}}
	}
	switch {
	case len(raw) == 0 || strict.Null(raw):
		return nil, nil
	case raw[0] == '"':
		return []block{words(param, raw)}, nil
	case raw[0] != '[':
		return nil, strict.Mismatch(param, "a string or an array of blocks", raw)
	}
	items, err := strict.Array(param, raw)
	if err != nil {
		return nil, err
	}
	all := make([]block, len(items))
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		if raw[0] == '"' {
			all[i] = words(at, raw)
			continue
		}
		b := &all[i]
		b.in, b.at = in, at
		if b.fields, err = strict.Object(at, raw); err != nil {
			return nil, err
		}
		if b.kind, err = b.optional("type"); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// optional returns a string member of the block, or "" if it is missing.
func (b *block) optional(name string) (string, error) {
	raw, ok := b.fields[name]
	if !ok || strict.Null(raw) {
		return "", nil
	}
	if name == "text" && b.fields["type"] == nil {
		return strict.String(b.at, raw) // content that is a string
	}
	return strict.String(b.at+"."+name, raw)
}

// A target takes the content of blocks.
type target struct {
	*conversation
	role string
	turn func() *transcript.Turn // called only for content that is not empty
}

// write appends a text.
func (t target) write(text string) {
	if text != "" {
		t.turn().Content.Write(text)
	}
}

// paragraph appends a text that stands for a block of another kind.
func (t target) paragraph(text string) {
	if text != "" {
		content := &t.turn().Content
		content.Separate()
		content.Write(text)
		content.Separate()
	}
}

// part adds a block to t, whatever its kind is. A block that templates have no place for becomes a
// text, if it has a meaning for the model.
func (b *block) part(t target) error {
	switch b.kind {
	case "text":
		text, err := b.text()
		if err == nil && t.role == "system" {
			text = b.withoutTelemetry(text)
		}
		t.write(text)
		return err
	case "image":
		return b.show(t)
	case "tool_reference":
		name, err := b.optional("tool_name")
		t.tools.refer(name)
		t.paragraph("[tool: " + name + "]")
		return err
	case "tool_addition", "tool_removal":
		return b.change(t.tools)
	default:
		t.paragraph(b.converted(t.tools.refer))
		return b.leave()
	}
}

// text returns the text of a block of the type text.
func (b *block) text() (string, error) {
	if err := b.in.Only(b.at, b.fields, "type", "text", "cache_control", "citations"); err != nil {
		return "", err
	}
	return b.optional("text")
}

// telemetry begins a line that Claude Code writes at the beginning of its system prompt, with
// values that differ between conversations.
const telemetry = "x-anthropic-billing-header:"

// withoutTelemetry returns a text of the system prompt without a line of telemetry: it says nothing
// to the model, and would keep conversations from sharing the KV cache of the rest.
func (b *block) withoutTelemetry(text string) string {
	if !strings.HasPrefix(text, telemetry) {
		return text
	}
	b.in.Ignore(b.at + "." + strings.TrimSuffix(telemetry, ":"))
	_, rest, _ := strings.Cut(text, "\n")
	return strings.TrimLeft(rest, "\n")
}

// show adds an image to t, or a note if the image cannot be shown.
func (b *block) show(t target) error {
	source, ok, err := b.image()
	switch {
	case err != nil:
		return err
	case !ok || t.role != "user" && t.role != "tool":
		t.paragraph("[image omitted]")
		return b.leave()
	}
	t.turn().Show(source.To)
	t.images = append(t.images, source)
	return nil
}

// setSystem parses the system prompt, whose blocks are paragraphs.
func setSystem(m *message, param string, raw json.RawMessage) error {
	all, err := blocks(m.in, param, raw)
	if err != nil {
		return err
	}
	system := &transcript.Turn{Message: &chatv1.Message{}}
	c := &conversation{in: m.in, tools: &m.tools}
	for i := range all {
		system.Content.Separate()
		if err := all[i].part(target{c, "system", func() *transcript.Turn { return system }}); err != nil {
			return err
		}
	}
	m.system = system.Content.String()
	return nil
}

func setMessages(m *message, param string, raw json.RawMessage) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	messages, lastUser := make([]map[string]json.RawMessage, len(items)), 0
	for i, raw := range items {
		if messages[i], err = strict.Object(fmt.Sprintf("%s[%d]", param, i), raw); err != nil {
			return err
		}
		if string(messages[i]["role"]) == `"user"` {
			lastUser = i
		}
	}
	c := &conversation{in: m.in, tools: &m.tools}
	for i, fields := range messages {
		cleared := i < lastUser && string(fields["clear_at"]) == `"next_user_message"`
		if err := c.add(fmt.Sprintf("%s[%d]", param, i), fields, cleared); err != nil {
			return err
		}
	}
	m.request.Messages, m.origins = c.Messages()
	m.images, m.effort = c.images, c.effort
	return nil
}

// A conversation collects the turns of a body's messages. Consecutive messages of one role become
// one turn, as in Anthropic's API, and a message without content is left out.
type conversation struct {
	in *strict.Reading
	transcript.Transcript
	images []image.Source
	tools  *tools
	effort string // of the last message of the system that has one
}

// add adds a message. Each tool_result becomes a turn of its own. The model no longer sees the text
// of a message of the system that is cleared.
func (c *conversation) add(param string, fields map[string]json.RawMessage, cleared bool) error {
	role, err := strict.Member(param, "role", fields)
	if role == "developer" { // OpenAI's word
		role = "system"
	}
	if err == nil {
		err = strict.OneOf(param+".role", role, "user", "assistant", "system")
	}
	if err == nil && role == "system" {
		fields, err = c.configure(param, fields)
	}
	if err == nil {
		err = c.in.Only(param, fields, "role", "content")
	}
	if err != nil {
		return err
	}
	all, err := blocks(c.in, param+".content", fields["content"])
	if err != nil {
		return err
	}
	if t := c.Last(role); t != nil { // a paragraph separates the texts of messages that become one turn
		t.Content.Separate()
		t.Reasoning.Separate()
	}
	to := target{c, role, func() *transcript.Turn { return c.Continue(param, role) }}
	if cleared && role == "system" {
		to.turn = func() *transcript.Turn { return &transcript.Turn{} }
	}
	for i := range all {
		if err := all[i].addTo(to); err != nil {
			return err
		}
	}
	return nil
}

// configure reads the fields of a message of the system that are no content: the effort of the next
// answer, and clear_at. It returns the other fields.
func (c *conversation) configure(param string, fields map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	rest := maps.Clone(fields)
	delete(rest, "clear_at")
	delete(rest, "output_config")
	raw := fields["output_config"]
	if strict.Empty(raw) {
		return rest, nil
	}
	param += ".output_config"
	config, err := c.in.Members(param, raw, "effort")
	if err != nil {
		return nil, err
	}
	effort, err := word(c.in, param+".effort", config["effort"], efforts...)
	if effort != "" {
		c.effort = effort
	}
	return rest, err
}

// addTo adds a block of a message.
func (b *block) addTo(t target) error {
	switch {
	case b.kind == "tool_result":
		return b.toolResult(t.conversation)
	case b.kind == "tool_use" && t.role == "assistant" && !strict.Empty(b.fields["name"]):
		return b.toolUse(t)
	case b.kind == "thinking" && t.role == "assistant":
		err := b.in.Only(b.at, b.fields, "type", "thinking", "signature", "cache_control")
		if err != nil {
			return err
		}
		text, err := b.optional("thinking")
		if text != "" {
			t.turn().Reasoning.Write(text)
		}
		return err
	case b.kind == "compaction" && !strict.Empty(b.fields["content"]):
		// Anthropic's API ignores everything before a summary.
		t.Transcript, t.images = transcript.Transcript{}, nil
		t.Begin(b.at, "user").Content.Write(b.converted(t.tools.refer))
		if err := b.changes(t); err != nil {
			return err
		}
		return b.leave()
	default:
		return b.part(t)
	}
}

// toolUse parses a call that the model has made.
func (b *block) toolUse(to target) error {
	err := b.in.Only(b.at, b.fields, "type", "id", "name", "input", "cache_control", "caller", "toolset_name")
	if err != nil {
		return err
	}
	made := &chatv1.ToolCall{}
	if made.Id, err = b.optional("id"); err != nil {
		return err
	}
	if made.Name, err = b.optional("name"); err != nil {
		return err
	}
	if made.Arguments, err = argumentsOf(b.at+".input", b.fields["input"]); err != nil {
		return err
	}
	to.tools.refer(made.GetName())
	t := to.turn()
	t.Message.ToolCalls = append(t.Message.ToolCalls, made)
	return nil
}

// argumentsOf returns the input of a call as text. An input should be an object. Models write other
// things, too, and a client sends them back in each later request: they stay as they are.
func argumentsOf(param string, raw json.RawMessage) (string, error) {
	switch {
	case len(raw) == 0 || strict.Null(raw):
		return "{}", nil
	case raw[0] == '{':
		return strict.Compact(param, raw)
	case raw[0] != '"':
		return compact(raw), nil
	}
	text, err := strict.String(param, raw)
	if text == "" {
		text = "{}"
	}
	return text, err
}

// compact returns valid JSON without white space.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw) // cannot happen: the body is valid
	}
	return b.String()
}

// failed is the content of a result that has none, and says only that the call has failed.
const failed = "error"

// toolResult parses the result of a call, which is a turn of its own. It drops is_error: chat
// templates have no place for it, and the text of the result tells the model.
func (b *block) toolResult(c *conversation) error {
	err := b.in.Only(b.at, b.fields, "type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name")
	if err != nil {
		return err
	}
	turn := c.Begin(b.at, "tool")
	if turn.Message.ToolCallId, err = b.optional("tool_use_id"); err != nil {
		return err
	}
	to := target{c, "tool", func() *transcript.Turn { return turn }}
	if raw := b.fields["content"]; len(raw) > 0 && raw[0] != '"' && raw[0] != '[' && !strict.Null(raw) {
		to.write(compact(raw)) // results of some clients are any JSON
	} else {
		all, err := blocks(b.in, b.at+".content", raw)
		for i := 0; i < len(all) && err == nil; i++ {
			err = all[i].part(to)
		}
		if err != nil {
			return err
		}
	}
	if string(b.fields["is_error"]) == "true" && turn.Content.String() == "" && len(turn.Message.GetImages()) == 0 {
		turn.Content.Write(failed)
	}
	return nil
}
