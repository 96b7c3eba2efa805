package conversation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/api-service/transcript"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// addCall adds a call of a function that the model has made.
func (c *items) addCall(at string, members map[string]json.RawMessage) error {
	c.ignore(at, members, "parsed_arguments")
	if err := c.in.Only(at, members, "type", "id", "status", "call_id", "name", "namespace", "arguments", "parsed_arguments", passthrough); err != nil {
		return err
	}
	name, err := called(at, members)
	if err != nil {
		return err
	}
	return c.call(at, name, members, members["arguments"])
}

// called returns the name by which the model knows a tool, or a tool that was called.
func called(at string, members map[string]json.RawMessage) (string, error) {
	name, err := strict.Member(at, "name", members)
	if err != nil {
		return "", err
	}
	namespace, err := optional(at, "namespace", members)
	if namespace != "" {
		name = Flat(namespace, name)
	}
	return name, err
}

// addChatCalls adds the calls of an assistant's message in the form of chats.
func (c *items) addChatCalls(at string, raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	calls, err := strict.Array(at+".tool_calls", raw)
	if err != nil {
		return err
	}
	for i, raw := range calls {
		at := fmt.Sprintf("%s.tool_calls[%d]", at, i)
		members, err := strict.Object(at, raw)
		if err != nil {
			return err
		}
		function, err := strict.Inner(at, "function", members)
		if err != nil {
			return err
		}
		name, err := strict.Member(at+".function", "name", function)
		if err != nil {
			return err
		}
		if err := c.call(at, name, members, function["arguments"]); err != nil {
			return err
		}
	}
	return nil
}

// call adds a call to the assistant's turn. Without call_id, its id is that of the item, or a number.
// The arguments may be any text, because a model may be cut off in the middle of them.
func (c *items) call(at, name string, members map[string]json.RawMessage, arguments json.RawMessage) error {
	made := &chatv1.ToolCall{Name: name}
	for _, member := range []string{"call_id", "id"} {
		if made.GetId() == "" {
			id, err := optional(at, member, members)
			if err != nil {
				return err
			}
			made.Id = id
		}
	}
	if made.GetId() == "" {
		made.Id = fmt.Sprintf("call_%d", c.calls)
	}
	c.calls++
	c.pending = append(c.pending, made.GetId())
	c.pending = c.pending[max(0, len(c.pending)-maxPending):]
	if made.Arguments = textOf(arguments); strings.TrimSpace(made.GetArguments()) == "" {
		made.Arguments = "{}" // some servers send an empty string for a call without arguments
	}
	t := c.Continue(at, assistant)
	t.Message.ToolCalls = append(t.Message.ToolCalls, made)
	t.Calls = append(t.Calls, at)
	return nil
}

// textOf returns a string, or any other JSON value as compact text. A missing value is "".
func textOf(raw json.RawMessage) string {
	if len(raw) == 0 || strict.Null(raw) {
		return ""
	}
	if text, err := strict.String("", raw); err == nil {
		return text
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// addOutput adds the result of a call of a function.
func (c *items) addOutput(at string, members map[string]json.RawMessage) error {
	if err := c.in.Only(at, members, "type", "id", "status", "call_id", "output", "name", passthrough); err != nil {
		return err
	}
	return c.addResult(at, at+".output", members, members["output"])
}

// addResult adds the result of a call: a content, or any JSON value, which becomes text.
func (c *items) addResult(at, param string, members map[string]json.RawMessage, output json.RawMessage) error {
	id, err := c.answered(at, members)
	if err != nil {
		return err
	}
	t := c.Begin(at, "tool")
	t.Message.ToolCallId = id
	return c.result(param, output, t)
}

// result adds the content of a result to a turn.
func (c *items) result(param string, output json.RawMessage, to *transcript.Turn) error {
	switch {
	case len(output) > 0 && output[0] == '{' && isPart(typeOf(output)):
		return c.part(param, output, to)
	case len(output) > 0 && output[0] == '[':
		if parts, err := strict.Array(param, output); err == nil && slices.ContainsFunc(parts, known) && !slices.ContainsFunc(parts, untyped) {
			return c.content(param, output, to)
		}
	}
	to.Content.Write(textOf(output))
	return nil
}

func known(raw json.RawMessage) bool { return isPart(typeOf(raw)) }

func untyped(raw json.RawMessage) bool { return typeOf(raw) == "" }

// typeOf returns the type of an object, or "".
func typeOf(raw json.RawMessage) string {
	members, err := strict.Object("", raw)
	if err != nil || len(members["type"]) == 0 {
		return ""
	}
	kind, err := strict.String("", members["type"])
	if err != nil {
		return ""
	}
	return kind
}

// maxPending bounds the calls that wait for a result, because each result is looked up among them.
const maxPending = 256

// answered returns the id of the call that a result answers. A result without call_id answers the
// first call that has no result.
func (c *items) answered(at string, members map[string]json.RawMessage) (id string, err error) {
	for _, name := range []string{"call_id", "tool_call_id"} {
		if id == "" {
			if id, err = optional(at, name, members); err != nil {
				return "", err
			}
		}
	}
	if id == "" && len(c.pending) > 0 {
		id = c.pending[0]
	}
	if i := slices.Index(c.pending, id); i >= 0 {
		c.pending = slices.Delete(c.pending, i, i+1)
	}
	return id, nil
}
