package conversation

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// function parses {"type": "function", "function": {…}}. The inner object may have only the members
// named.
func function(in *strict.Reading, param string, raw json.RawMessage, beside []string, names ...string) (outer, inner map[string]json.RawMessage, err error) {
	if outer, err = strict.Object(param, raw); err != nil {
		return nil, nil, err
	}
	kind, err := strict.Member(param, "type", outer)
	if err != nil {
		return nil, nil, err
	}
	if kind != "function" {
		return nil, nil, streamerr.InvalidParam(param+".type", "%s.type is %q; only \"function\" is supported", param, strict.Printable(kind)).WithCode(streamerr.CodeUnsupportedValue)
	}
	if err := in.Only(param, outer, append(beside, "type", "function")...); err != nil {
		return nil, nil, err
	}
	raw, ok := outer["function"]
	if !ok {
		return nil, nil, streamerr.InvalidParam(param+".function", "%s.function is missing", param).WithCode(streamerr.CodeMissing)
	}
	if inner, err = strict.Object(param+".function", raw); err != nil {
		return nil, nil, err
	}
	return outer, inner, in.Only(param+".function", inner, names...)
}

// Tools parses the functions that a model may call.
func Tools(in *strict.Reading, param string, raw json.RawMessage) ([]*chatv1.Tool, error) {
	items, err := strict.Array(param, raw)
	if err != nil {
		return nil, err
	}
	tools := make([]*chatv1.Tool, 0, len(items))
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		_, fields, err := function(in, at, raw, nil, "name", "description", "parameters", "strict")
		if err != nil {
			return nil, err
		}
		at += ".function"
		tool := &chatv1.Tool{}
		if tool.Name, err = strict.Member(at, "name", fields); err != nil {
			return nil, err
		}
		if raw, ok := fields["description"]; ok && !strict.Null(raw) {
			if tool.Description, err = strict.String(at+".description", raw); err != nil {
				return nil, err
			}
		}
		if raw, ok := fields["parameters"]; ok && !strict.Null(raw) {
			if tool.Parameters, err = strict.Compact(at+".parameters", raw); err != nil {
				return nil, err
			}
		}
		if raw, ok := fields["strict"]; ok && !strict.Null(raw) {
			// A required call is always strict; other calls never are.
			if _, err = strict.Boolean(at+".strict", raw); err != nil {
				return nil, err
			}
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

var toolModes = map[string]chatv1.ToolMode{
	"none": chatv1.ToolMode_TOOL_MODE_NONE, "auto": chatv1.ToolMode_TOOL_MODE_AUTO, "required": chatv1.ToolMode_TOOL_MODE_REQUIRED,
}

// ToolChoice parses the tool choice: whether to call a tool, and which one.
func ToolChoice(in *strict.Reading, param string, raw json.RawMessage) (*chatv1.ToolChoice, error) {
	choice := &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED}
	if raw[0] == '"' {
		word, err := strict.String(param, raw)
		if err != nil {
			return nil, err
		}
		mode, ok := toolModes[word]
		if !ok {
			return nil, streamerr.InvalidParam(param, "%s is %q; it must be none, auto, required, or name a function", param, strict.Printable(word))
		}
		choice.Mode = mode
	} else {
		_, fields, err := function(in, param, raw, nil, "name")
		if err != nil {
			return nil, err
		}
		if choice.Name, err = strict.Member(param+".function", "name", fields); err != nil {
			return nil, err
		}
	}
	return choice, nil
}

// toolCalls parses the tool calls of an assistant's message.
func toolCalls(in *strict.Reading, param string, raw json.RawMessage) ([]*chatv1.ToolCall, error) {
	items, err := strict.Array(param, raw)
	if err != nil {
		return nil, err
	}
	var calls []*chatv1.ToolCall
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		outer, fields, err := function(in, at, raw, []string{"id", "index"}, "name", "arguments")
		if err != nil {
			return nil, err
		}
		call := &chatv1.ToolCall{}
		if call.Id, err = strict.Member(at, "id", outer); err != nil {
			return nil, err
		}
		if call.Name, err = strict.Member(at+".function", "name", fields); err != nil {
			return nil, err
		}
		if call.Arguments, err = strict.Member(at+".function", "arguments", fields); err != nil {
			return nil, err
		}
		if strings.TrimSpace(call.GetArguments()) == "" {
			call.Arguments = "{}" // some servers send an empty string for a call without arguments
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// inFunction matches members of tools and calls that are one level deeper in OpenAI's JSON than in
// the IDL.
var inFunction = regexp.MustCompile(`^((?:tools|messages\[\d+\]\.tool_calls)\[\d+\])\.(name|description|parameters|arguments)$`)

// Param converts a field name of the IDL to its name in the JSON of a conversation.
func Param(inner string) string {
	return strings.TrimSuffix(inFunction.ReplaceAllString(inner, "$1.function.$2"), ".reasoning")
}
