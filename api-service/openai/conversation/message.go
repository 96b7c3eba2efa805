// Package conversation parses conversations in OpenAI's JSON: messages, tools, and the tool choice.
//
// Fields are read as in package openai, whose requests contain conversations.
package conversation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Messages parses a conversation. It returns the messages and the sources of their images, which
// have not been fetched yet.
func Messages(in *strict.Reading, param string, raw json.RawMessage) ([]*chatv1.Message, []image.Source, error) {
	items, err := strict.Array(param, raw)
	if err != nil {
		return nil, nil, err
	}
	messages, images := make([]*chatv1.Message, len(items)), []image.Source(nil)
	for i, raw := range items {
		if messages[i], err = message(in, fmt.Sprintf("%s[%d]", param, i), raw, &images); err != nil {
			return nil, nil, err
		}
	}
	return messages, images, nil
}

var roles = []string{"system", "developer", "user", "assistant", "tool"}

func message(in *strict.Reading, param string, raw json.RawMessage, images *[]image.Source) (*chatv1.Message, error) {
	fields, err := strict.Object(param, raw)
	if err != nil {
		return nil, err
	}
	defer strict.Recycle(fields)
	m := &chatv1.Message{}
	if m.Role, err = strict.Member(param, "role", fields); err != nil {
		return nil, err
	}
	if !slices.Contains(roles, m.Role) {
		return nil, streamerr.InvalidParam(param+".role", "%s.role is %q; it must be one of %s", param, strict.Printable(m.Role), strings.Join(roles, ", "))
	}
	for name, raw := range fields {
		if err := field(in, param, name, raw, m, images); err != nil {
			return nil, err
		}
	}
	if _, ok := fields["content"]; !ok && len(m.GetToolCalls()) == 0 {
		return nil, streamerr.InvalidParam(param+".content", "%s.content is missing", param).WithCode(streamerr.CodeMissing)
	}
	if m.GetRole() == "tool" && m.GetToolCallId() == "" {
		return nil, streamerr.InvalidParam(param+".tool_call_id", "%s.tool_call_id is missing: it says which call the tool has answered", param).WithCode(streamerr.CodeMissing)
	}
	return m, nil
}

// field parses one field of a message whose role is known.
func field(in *strict.Reading, param, name string, raw json.RawMessage, m *chatv1.Message, images *[]image.Source) (err error) {
	at := param + "." + name
	null := bytes.Equal(raw, []byte("null"))
	switch name {
	case "role":
	case "content":
		return content(in, at, raw, m, images)
	case "name":
		if !null {
			m.Name, err = strict.String(at, raw)
		}
	case "tool_calls":
		if !null && m.Role != "assistant" {
			return streamerr.InvalidParam(at, "%s is only for the role assistant", at)
		}
		if !null {
			m.ToolCalls, err = toolCalls(in, at, raw)
		}
	case "tool_call_id":
		if !null && m.Role != "tool" {
			return streamerr.InvalidParam(at, "%s is only for the role tool", at)
		}
		if !null {
			m.ToolCallId, err = strict.String(at, raw)
		}
	case "reasoning_content", "reasoning":
		if !null && m.Role == "assistant" && m.Reasoning == "" {
			m.Reasoning, err = strict.String(at, raw)
		}
	case "function_call", "audio":
		if !null && !bytes.Equal(bytes.TrimSpace(raw), []byte("[]")) {
			return streamerr.InvalidParam(at, "%s is not supported by this model", at).WithCode(streamerr.CodeUnsupportedField)
		}
	case "refusal", "annotations": // fields of an answer that clients send back; not part of its text
	default:
		if !null {
			return in.Unknown(param + "." + strict.Printable(name))
		}
	}
	return err
}

// content parses a string, or an array of parts, into a message whose role is known.
func content(in *strict.Reading, param string, raw json.RawMessage, m *chatv1.Message, images *[]image.Source) (err error) {
	switch {
	case raw[0] == '"':
		m.Content, err = strict.String(param, raw)
		return err
	case m.GetRole() == "assistant" && bytes.Equal(raw, []byte("null")):
		return nil
	case raw[0] != '[':
		return strict.Mismatch(param, "a string or an array of parts", raw)
	}
	parts, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return streamerr.InvalidParam(param, "%s has no parts", param)
	}
	var text strings.Builder
	for i, raw := range parts {
		at := fmt.Sprintf("%s[%d]", param, i)
		part, err := strict.Object(at, raw)
		if err != nil {
			return err
		}
		kind, err := strict.Member(at, "type", part)
		if err != nil {
			return err
		}
		switch {
		case kind == "text":
			s, err := strict.Member(at, "text", part)
			if err != nil {
				return err
			}
			text.WriteString(s)
		case kind == "image_url" && m.GetRole() == "user":
			source, err := imageURL(in, at, part)
			if err != nil {
				return err
			}
			*images = append(*images, source)
			m.Images = append(m.Images, &chatv1.PlacedImage{Image: source.To, Offset: uint32(text.Len())}) //nolint:gosec // a body is smaller
		default:
			return unreadable(at, kind)
		}
	}
	m.Content = text.String()
	return nil
}

// unreadable returns the refusal of a part of another type.
func unreadable(at, kind string) error {
	return streamerr.InvalidParam(at, "%s is of the type %q; supported parts: text, and image_url in user messages", at, strict.Printable(kind)).WithCode(streamerr.CodeUnsupportedValue)
}
