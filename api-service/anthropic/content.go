package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/api-service/transcript"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A block is an element of a content array.
type block struct {
	in     *strict.Reading
	at     string // its path in the body
	kind   string
	fields map[string]json.RawMessage
}

// blocks parses content: a string, which is one block of text, or an array of blocks.
func blocks(in *strict.Reading, param string, raw json.RawMessage) ([]block, error) {
	switch {
	case len(raw) == 0:
		return nil, streamerr.InvalidParam(param, "%s is missing", param).WithCode(streamerr.CodeMissing)
	case raw[0] == '"':
		return []block{{in: in, at: param, kind: "text", fields: map[string]json.RawMessage{"text": raw}}}, nil
	case raw[0] != '[':
		return nil, strict.Mismatch(param, "a string or an array of blocks", raw)
	}
	items, err := strict.Array(param, raw)
	if err != nil {
		return nil, err
	}
	all := make([]block, len(items))
	for i, raw := range items {
		b := &all[i]
		b.in, b.at = in, fmt.Sprintf("%s[%d]", param, i)
		if b.fields, err = strict.Object(b.at, raw); err != nil {
			return nil, err
		}
		if b.kind, err = strict.Member(b.at, "type", b.fields); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// text returns a block's text, which must be of the type text.
func (b *block) text() (string, error) {
	if b.kind != "text" {
		return "", b.unsupported()
	}
	if err := b.in.Only(b.at, b.fields, "type", "text", "cache_control", "citations"); err != nil {
		return "", err
	}
	return b.member("text")
}

// member returns a string that the block must have.
func (b *block) member(name string) (string, error) {
	if raw := b.fields[name]; name == "text" && b.fields["type"] == nil {
		return strict.String(b.at, raw) // content that is a string
	}
	return strict.Member(b.at, name, b.fields)
}

func (b *block) unsupported() error {
	return streamerr.InvalidParam(b.at, "%s is of the type %q, which is not supported here by this model", b.at, strict.Printable(b.kind)).WithCode(streamerr.CodeUnsupportedValue)
}

// texts joins content that consists of text blocks.
func texts(in *strict.Reading, param string, raw json.RawMessage, separator string) (string, error) {
	all, err := blocks(in, param, raw)
	if err != nil {
		return "", err
	}
	parts := make([]string, len(all))
	for i := range all {
		if parts[i], err = all[i].text(); err != nil {
			return "", err
		}
	}
	return strings.Join(parts, separator), nil
}

func setSystem(m *message, param string, raw json.RawMessage) error {
	var err error
	m.system, err = texts(m.in, param, raw, transcript.Paragraph)
	return err
}

func setMessages(m *message, param string, raw json.RawMessage) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	c := &conversation{in: m.in}
	for i, raw := range items {
		if err := c.add(fmt.Sprintf("%s[%d]", param, i), raw); err != nil {
			return err
		}
	}
	m.request.Messages, m.origins = c.Messages()
	m.images = c.images
	return nil
}

// A conversation collects the turns of a body's messages. Consecutive messages of one role become
// one turn, as in Anthropic's API, and a message without content is left out.
type conversation struct {
	in *strict.Reading
	transcript.Transcript
	images []image.Source
}

// add adds a message. Each tool_result of a user message becomes a turn of its own.
func (c *conversation) add(param string, raw json.RawMessage) error {
	fields, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	role, err := strict.Member(param, "role", fields)
	if err == nil {
		err = strict.OneOf(param+".role", role, "user", "assistant", "system")
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
	for i := range all {
		b := &all[i]
		if role == "user" && b.kind == "tool_result" {
			err = b.toolResult(c.Begin(b.at, "tool"))
		} else {
			err = b.addTo(c, param, role)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addTo adds a block of a message with a role. The block is not a tool_result.
func (b *block) addTo(c *conversation, param, role string) error {
	switch {
	case b.kind == "thinking" && role == "assistant":
		if err := b.in.Only(b.at, b.fields, "type", "thinking", "signature"); err != nil {
			return err
		}
		text, err := b.member("thinking")
		if text != "" {
			c.Continue(param, role).Reasoning.Write(text)
		}
		return err
	case b.kind == "image" && role == "user":
		source, err := b.image()
		if err != nil {
			return err
		}
		c.images = append(c.images, source)
		c.Continue(param, role).Show(source.To)
		return nil
	case b.kind == "tool_use" && role == "assistant":
		made, err := b.toolUse()
		if err != nil {
			return err
		}
		t := c.Continue(param, role)
		t.Message.ToolCalls = append(t.Message.ToolCalls, made)
		return nil
	default:
		text, err := b.text()
		if text != "" {
			c.Continue(param, role).Content.Write(text)
		}
		return err
	}
}

// toolUse parses a call that the model has made.
func (b *block) toolUse() (*chatv1.ToolCall, error) {
	if err := b.in.Only(b.at, b.fields, "type", "id", "name", "input", "cache_control", "caller"); err != nil {
		return nil, err
	}
	made := &chatv1.ToolCall{}
	var err error
	if made.Id, err = b.member("id"); err != nil {
		return nil, err
	}
	if made.Name, err = b.member("name"); err != nil {
		return nil, err
	}
	at := b.at + ".input"
	raw, ok := b.fields["input"]
	if !ok {
		return nil, streamerr.InvalidParam(at, "%s is missing", at).WithCode(streamerr.CodeMissing)
	}
	made.Arguments, err = strict.Compact(at, raw)
	return made, err
}

// toolResult parses the result of a call. It drops is_error: chat templates have no place for it,
// and the text of the result tells the model.
func (b *block) toolResult(to *transcript.Turn) error {
	if err := b.in.Only(b.at, b.fields, "type", "tool_use_id", "content", "is_error", "cache_control"); err != nil {
		return err
	}
	var err error
	if to.Message.ToolCallId, err = b.member("tool_use_id"); err != nil {
		return err
	}
	if raw, ok := b.fields["is_error"]; ok && !strict.Null(raw) {
		if _, err = strict.Boolean(b.at+".is_error", raw); err != nil {
			return err
		}
	}
	if raw, ok := b.fields["content"]; ok && !strict.Null(raw) {
		var text string
		text, err = texts(b.in, b.at+".content", raw, "")
		to.Content.Write(text)
	}
	return err
}
