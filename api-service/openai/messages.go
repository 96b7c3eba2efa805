package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func setMessages(c *Chat, param string, raw json.RawMessage) (err error) {
	c.Request.Messages, err = Messages(param, raw)
	return err
}

// Messages reads a conversation.
func Messages(param string, raw json.RawMessage) ([]*chatv1.Message, error) {
	items, err := array(param, raw)
	if err != nil {
		return nil, err
	}
	messages := make([]*chatv1.Message, len(items))
	for i, raw := range items {
		if messages[i], err = message(fmt.Sprintf("%s[%d]", param, i), raw); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

var roles = []string{"system", "developer", "user", "assistant", "tool"}

func message(param string, raw json.RawMessage) (*chatv1.Message, error) {
	fields, err := object(param, raw)
	if err != nil {
		return nil, err
	}
	m := &chatv1.Message{}
	if m.Role, err = member(param, "role", fields); err != nil {
		return nil, err
	}
	if !slices.Contains(roles, m.Role) {
		return nil, streamerr.InvalidParam(param+".role", "%s.role is %q; it must be one of %s", param, printable(m.Role), strings.Join(roles, ", "))
	}
	for name, raw := range fields {
		at := param + "." + printable(name)
		null := bytes.Equal(raw, []byte("null"))
		switch name {
		case "role":
		case "content":
			if m.Content, err = content(at, raw, m.Role == "assistant"); err != nil {
				return nil, err
			}
		case "name":
			if !null {
				if m.Name, err = text(at, raw); err != nil {
					return nil, err
				}
			}
		case "tool_calls", "function_call", "tool_call_id", "audio":
			if !null && !bytes.Equal(bytes.TrimSpace(raw), []byte("[]")) {
				return nil, unsupported(at, "%s is not supported by this model", at)
			}
		case "refusal", "annotations", "reasoning_content", "reasoning": // what clients send back of an answer; no part of its text
		default:
			return nil, streamerr.InvalidParam(at, "unknown field %q", at)
		}
	}
	if _, ok := fields["content"]; !ok {
		return nil, streamerr.InvalidParam(param+".content", "%s.content is missing", param)
	}
	return m, nil
}

// content reads a string, or an array of parts that are text.
func content(param string, raw json.RawMessage, nullable bool) (string, error) {
	switch {
	case raw[0] == '"':
		return text(param, raw)
	case nullable && bytes.Equal(raw, []byte("null")):
		return "", nil
	case raw[0] != '[':
		return "", mismatch(param, "a string or an array of parts", raw)
	}
	parts, err := array(param, raw)
	if err != nil {
		return "", err
	}
	if len(parts) == 0 {
		return "", streamerr.InvalidParam(param, "%s has no parts", param)
	}
	var b strings.Builder
	for i, raw := range parts {
		at := fmt.Sprintf("%s[%d]", param, i)
		part, err := object(at, raw)
		if err != nil {
			return "", err
		}
		kind, err := member(at, "type", part)
		if err != nil {
			return "", err
		}
		if kind != "text" {
			return "", unsupported(at+".type", "%s.type is %q; this model only supports \"text\"", at, printable(kind))
		}
		s, err := member(at, "text", part)
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}
