package anthropic

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func setTools(m *message, param string, raw json.RawMessage) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	for i, raw := range items {
		tool, err := toolOf(m.in, fmt.Sprintf("%s[%d]", param, i), raw)
		if err != nil {
			return err
		}
		m.request.Tools = append(m.request.Tools, tool)
	}
	return nil
}

// toolOf parses a tool that the client runs. Tools that Anthropic's servers run have types of their
// own.
func toolOf(in *strict.Reading, at string, raw json.RawMessage) (*chatv1.Tool, error) {
	fields, err := strict.Object(at, raw)
	if err != nil {
		return nil, err
	}
	if raw, ok := fields["type"]; ok && !strict.Null(raw) {
		kind, err := strict.String(at+".type", raw)
		if err != nil {
			return nil, err
		}
		if kind != "custom" {
			return nil, streamerr.InvalidParam(at+".type", "%s.type is %q; only custom tools are supported", at, strict.Printable(kind)).WithCode(streamerr.CodeUnsupportedValue)
		}
	}
	// A required call is always strict, other calls never are, and arguments are always streamed.
	if err := in.Only(at, fields, "type", "name", "description", "input_schema", "cache_control", "strict", "eager_input_streaming", "defer_loading", "allowed_callers"); err != nil {
		return nil, err
	}
	if raw, ok := fields["defer_loading"]; ok && !strict.Null(raw) {
		if deferred, err := strict.Boolean(at+".defer_loading", raw); err != nil || deferred {
			return nil, streamerr.InvalidParam(at+".defer_loading", "%s.defer_loading must be false: the prompt holds all tools", at).WithCode(streamerr.CodeUnsupportedValue)
		}
	}
	if raw, ok := fields["allowed_callers"]; ok && !strict.Null(raw) {
		if callers, err := strict.Strings(at+".allowed_callers", raw); err != nil || !slices.Equal(callers, []string{"direct"}) {
			return nil, streamerr.InvalidParam(at+".allowed_callers", `%s.allowed_callers must be ["direct"]: only the model calls tools`, at).WithCode(streamerr.CodeUnsupportedValue)
		}
	}
	tool := &chatv1.Tool{}
	if tool.Name, err = strict.Member(at, "name", fields); err != nil {
		return nil, err
	}
	if raw, ok := fields["description"]; ok && !strict.Null(raw) {
		if tool.Description, err = strict.String(at+".description", raw); err != nil {
			return nil, err
		}
	}
	raw, ok := fields["input_schema"]
	if !ok {
		return nil, streamerr.InvalidParam(at+".input_schema", "%s.input_schema is missing", at).WithCode(streamerr.CodeMissing)
	}
	tool.Parameters, err = strict.Compact(at+".input_schema", raw)
	return tool, err
}

var toolModes = map[string]chatv1.ToolMode{
	"none": chatv1.ToolMode_TOOL_MODE_NONE, "auto": chatv1.ToolMode_TOOL_MODE_AUTO,
	"any": chatv1.ToolMode_TOOL_MODE_REQUIRED, "tool": chatv1.ToolMode_TOOL_MODE_REQUIRED,
}

func setToolChoice(m *message, param string, raw json.RawMessage) error {
	fields, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	kind, err := strict.Member(param, "type", fields)
	if err == nil {
		err = strict.OneOf(param+".type", kind, "auto", "any", "tool", "none")
	}
	if err != nil {
		return err
	}
	choice := &chatv1.ToolChoice{Mode: toolModes[kind]}
	members := []string{"type", "disable_parallel_tool_use"}
	if kind == "tool" {
		members = append(members, "name")
		if choice.Name, err = strict.Member(param, "name", fields); err != nil {
			return err
		}
	}
	if err := m.in.Only(param, fields, members...); err != nil {
		return err
	}
	if raw, ok := fields["disable_parallel_tool_use"]; ok && !strict.Null(raw) {
		disabled, err := strict.Boolean(param+".disable_parallel_tool_use", raw)
		if err != nil {
			return err
		}
		m.request.ParallelToolCalls = new(!disabled)
	}
	m.request.ToolChoice = choice
	if choice.GetMode() == chatv1.ToolMode_TOOL_MODE_REQUIRED {
		m.guide = param
	}
	return nil
}
