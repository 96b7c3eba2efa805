package conversation

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// toolModes are the words of a tool choice. "any" is "required" in other APIs.
var toolModes = map[string]chatv1.ToolMode{
	"none": chatv1.ToolMode_TOOL_MODE_NONE, "auto": chatv1.ToolMode_TOOL_MODE_AUTO,
	"required": chatv1.ToolMode_TOOL_MODE_REQUIRED, "any": chatv1.ToolMode_TOOL_MODE_REQUIRED,
}

// Choose parses the tool choice: whether to call a tool, and which one. A choice among some of the
// tools removes the others.
func (t *Tools) Choose(in *strict.Reading, param string, raw json.RawMessage) (*chatv1.ToolChoice, error) {
	if raw[0] == '"' {
		choice, err := mode(param, raw)
		if name, _ := strict.String(param, raw); err != nil && t.has(name) { // the form of text-generation-inference
			return &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED, Name: name}, nil
		}
		return choice, err
	}
	fields, err := strict.Object(param, raw)
	if err != nil {
		return nil, err
	}
	kind, err := kindOfCall(param, fields)
	if err != nil {
		return nil, err
	}
	switch {
	case kind == "allowed_tools":
		return t.allow(in, param, fields)
	case kind == "function" || kind == "custom" || kind == "tool":
		at, fields, err := innerOf(in, param, kind, fields, "name")
		if err != nil {
			return nil, err
		}
		choice := &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED}
		choice.Name, err = strict.Member(at, "name", fields)
		return choice, err
	case toolModes[kind] != chatv1.ToolMode_TOOL_MODE_UNSPECIFIED: // Anthropic's form
		return mode(param+".type", fields["type"])
	default:
		return nil, streamerr.InvalidParam(param+".type", "%s.type is %q, and this service has no tools of this kind; it calls functions and custom tools", param, strict.Printable(kind)).WithCode(streamerr.CodeUnsupportedValue)
	}
}

func (t *Tools) has(name string) bool {
	return slices.ContainsFunc(t.List, func(tool *chatv1.Tool) bool { return tool.GetName() == name })
}

func mode(param string, raw json.RawMessage) (*chatv1.ToolChoice, error) {
	word, err := strict.String(param, raw)
	if err != nil {
		return nil, err
	}
	mode, ok := toolModes[word]
	if !ok {
		return nil, streamerr.InvalidParam(param, "%s is %q; it must be none, auto, required, or name a function", param, strict.Printable(word))
	}
	return &chatv1.ToolChoice{Mode: mode}, nil
}

// allow parses a choice among some of the tools.
func (t *Tools) allow(in *strict.Reading, param string, fields map[string]json.RawMessage) (*chatv1.ToolChoice, error) {
	param, fields, err := allowed(param, fields)
	if err != nil {
		return nil, err
	}
	choice, err := mode(param+".mode", fields["mode"])
	if err != nil {
		return nil, err
	}
	items, err := strict.Array(param+".tools", fields["tools"])
	if err != nil {
		return nil, err
	}
	var names []string
	for i, raw := range items {
		at := fmt.Sprintf("%s.tools[%d]", param, i)
		outer, err := strict.Object(at, raw)
		if err != nil {
			return nil, err
		}
		kind, err := kindOfCall(at, outer)
		if err != nil {
			return nil, err
		}
		if kind != "function" && kind != "custom" {
			if err := in.Unsupported(at); err != nil {
				return nil, err
			}
			continue
		}
		at, inner, err := innerOf(in, at, kind, outer, "name")
		if err != nil {
			return nil, err
		}
		name, err := strict.Member(at, "name", inner)
		if err != nil {
			return nil, err
		}
		if !t.has(name) {
			return nil, streamerr.InvalidParam(at+".name", "%s.name is %q, but no tool has this name", at, strict.Printable(name))
		}
		names = append(names, name)
	}
	t.List = slices.DeleteFunc(t.List, func(tool *chatv1.Tool) bool { return !slices.Contains(names, tool.GetName()) })
	return choice, nil
}

// allowed returns the object that has the mode and the tools: the member allowed_tools, or, as in the
// Responses API, the choice itself.
func allowed(param string, fields map[string]json.RawMessage) (string, map[string]json.RawMessage, error) {
	if raw, ok := fields["allowed_tools"]; ok {
		param += ".allowed_tools"
		var err error
		if fields, err = strict.Object(param, raw); err != nil {
			return param, nil, err
		}
	}
	for _, name := range []string{"mode", "tools"} {
		if fields[name] == nil {
			return param, nil, streamerr.InvalidParam(param+"."+name, "%s.%s is missing", param, name).WithCode(streamerr.CodeMissing)
		}
	}
	return param, fields, nil
}
