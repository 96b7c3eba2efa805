package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func null(raw json.RawMessage) bool { return bytes.Equal(raw, []byte("null")) }

// only refuses members that are not among names.
func only(param string, fields map[string]json.RawMessage, names ...string) error {
next:
	for name := range fields {
		for _, known := range names {
			if name == known {
				continue next
			}
		}
		at := param + "." + printable(name)
		return streamerr.InvalidParam(at, "unknown field %q", at)
	}
	return nil
}

// function reads {"type": "function", "function": {…}}, of which the latter has only the members named.
func function(param string, raw json.RawMessage, beside []string, names ...string) (outer, inner map[string]json.RawMessage, err error) {
	if outer, err = object(param, raw); err != nil {
		return nil, nil, err
	}
	kind, err := member(param, "type", outer)
	if err != nil {
		return nil, nil, err
	}
	if kind != "function" {
		return nil, nil, unsupported(param+".type", "%s.type is %q; only \"function\" is supported", param, printable(kind))
	}
	if err := only(param, outer, append(beside, "type", "function")...); err != nil {
		return nil, nil, err
	}
	raw, ok := outer["function"]
	if !ok {
		return nil, nil, streamerr.InvalidParam(param+".function", "%s.function is missing", param)
	}
	if inner, err = object(param+".function", raw); err != nil {
		return nil, nil, err
	}
	return outer, inner, only(param+".function", inner, names...)
}

func setTools(c *Chat, param string, raw json.RawMessage) error {
	items, err := array(param, raw)
	if err != nil {
		return err
	}
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		_, fields, err := function(at, raw, nil, "name", "description", "parameters", "strict")
		if err != nil {
			return err
		}
		at += ".function"
		tool := &chatv1.Tool{}
		if tool.Name, err = member(at, "name", fields); err != nil {
			return err
		}
		if raw, ok := fields["description"]; ok && !null(raw) {
			if tool.Description, err = text(at+".description", raw); err != nil {
				return err
			}
		}
		if raw, ok := fields["parameters"]; ok && !null(raw) {
			if tool.Parameters, err = schema(at+".parameters", raw); err != nil {
				return err
			}
		}
		if raw, ok := fields["strict"]; ok && !null(raw) { // a required call is always strict, any other never is
			if _, err = boolean(at+".strict", raw); err != nil {
				return err
			}
		}
		c.Request.Tools = append(c.Request.Tools, tool)
	}
	return nil
}

// schema returns an object as it is, but for white space.
func schema(param string, raw json.RawMessage) (string, error) {
	if _, err := object(param, raw); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "", mismatch(param, "an object", raw)
	}
	return b.String(), nil
}

var toolModes = map[string]chatv1.ToolMode{
	"none": chatv1.ToolMode_TOOL_MODE_NONE, "auto": chatv1.ToolMode_TOOL_MODE_AUTO, "required": chatv1.ToolMode_TOOL_MODE_REQUIRED,
}

func setToolChoice(c *Chat, param string, raw json.RawMessage) error {
	choice := &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED}
	if raw[0] == '"' {
		word, err := text(param, raw)
		if err != nil {
			return err
		}
		mode, ok := toolModes[word]
		if !ok {
			return unsupported(param, "%s is %q; it must be none, auto, required, or name a function", param, printable(word))
		}
		choice.Mode = mode
	} else {
		_, fields, err := function(param, raw, nil, "name")
		if err != nil {
			return err
		}
		if choice.Name, err = member(param+".function", "name", fields); err != nil {
			return err
		}
	}
	if choice.GetMode() == chatv1.ToolMode_TOOL_MODE_REQUIRED {
		c.guide = param
	}
	c.Request.ToolChoice = choice
	return nil
}

// toolCalls reads the calls of an assistant's turn.
func toolCalls(param string, raw json.RawMessage) ([]*chatv1.ToolCall, error) {
	items, err := array(param, raw)
	if err != nil {
		return nil, err
	}
	var calls []*chatv1.ToolCall
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		outer, fields, err := function(at, raw, []string{"id", "index"}, "name", "arguments")
		if err != nil {
			return nil, err
		}
		call := &chatv1.ToolCall{}
		if call.Id, err = member(at, "id", outer); err != nil {
			return nil, err
		}
		if call.Name, err = member(at+".function", "name", fields); err != nil {
			return nil, err
		}
		if call.Arguments, err = member(at+".function", "arguments", fields); err != nil {
			return nil, err
		}
		if strings.TrimSpace(call.GetArguments()) == "" {
			call.Arguments = "{}" // as some servers say it of tools without any
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// inFunction are members of tools and calls that OpenAI's JSON has one level deeper than the IDL.
var inFunction = regexp.MustCompile(`^((?:tools|messages\[\d+\]\.tool_calls)\[\d+\])\.(name|description|parameters|arguments)$`)

// toolParam names a field of the IDL as the body did.
func (c *Chat) toolParam(name string) string {
	switch {
	case name == "template_variables":
		return "chat_template_kwargs"
	case name == "guide" && c.guide != "":
		return c.guide
	case inFunction.MatchString(name):
		return inFunction.ReplaceAllString(name, "$1.function.$2")
	}
	return strings.TrimSuffix(name, ".reasoning")
}
