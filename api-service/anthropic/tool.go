package anthropic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// tools are the tools of a body.
type tools struct {
	all      []tool
	searched bool            // Anthropic's servers would search the deferred tools
	named    map[string]bool // the tools that the messages call or refer to
}

// A tool is a tool that the client runs.
type tool struct {
	*chatv1.Tool
	at       string // its path in the body
	deferred bool   // the prompt has the tool once it is named
}

// serverTools are the kinds of tools that Anthropic's servers run or describe, without their dates.
var serverTools = []string{
	"advisor", "bash", "code_execution", "computer", "mcp_toolset", "memory", "text_editor", toolSearch + "_bm25", toolSearch + "_regex", "web_fetch", "web_search",
}

const toolSearch = "tool_search_tool"

func setTools(m *message, param string, raw json.RawMessage) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		fields, err := strict.Object(at, raw)
		if err != nil {
			return err
		}
		kind, err := (&block{at: at, fields: fields}).optional("type")
		if err != nil {
			return err
		}
		if kind != "" && kind != "custom" {
			if err := m.leaveTool(at, kind); err != nil {
				return err
			}
			continue
		}
		read, err := toolOf(m.in, at, fields)
		if err != nil {
			return err
		}
		m.tools.all = append(m.tools.all, read)
	}
	return nil
}

// leaveTool leaves out a tool that Anthropic's servers run or describe. Its type is the kind with a date.
func (m *message) leaveTool(at, kind string) error {
	m.tools.searched = m.tools.searched || strings.HasPrefix(kind, toolSearch)
	for _, known := range serverTools {
		if kind == known || strings.HasPrefix(kind, known+"_2") {
			return m.in.Unsupported(at + "." + known)
		}
	}
	return m.in.Unsupported(at)
}

// toolOf parses a tool that the client runs.
func toolOf(in *strict.Reading, at string, fields map[string]json.RawMessage) (tool, error) {
	b := block{in: in, at: at, fields: fields}
	// A required call is always strict, other calls never are, and arguments are always streamed.
	err := in.Only(at, fields, "type", "name", "description", "input_schema", "cache_control", "strict", "eager_input_streaming", "defer_loading", "allowed_callers", "input_examples")
	if err != nil {
		return tool{}, err
	}
	if !strict.Empty(fields["input_examples"]) {
		if err := in.Unsupported(at + ".input_examples"); err != nil {
			return tool{}, err
		}
	}
	read := tool{Tool: &chatv1.Tool{}, at: at}
	if raw := fields["defer_loading"]; len(raw) > 0 && !strict.Null(raw) {
		if read.deferred, err = strict.Boolean(at+".defer_loading", raw); err != nil {
			return tool{}, err
		}
	}
	if raw := fields["allowed_callers"]; !strict.Empty(raw) {
		if callers, err := strict.Strings(at+".allowed_callers", raw); err != nil || !slices.Equal(callers, []string{"direct"}) {
			if err := in.Unsupported(at + ".allowed_callers"); err != nil { // only the model calls tools
				return tool{}, err
			}
		}
	}
	if read.Name, err = strict.Member(at, "name", fields); err != nil {
		return tool{}, err
	}
	if read.Description, err = b.optional("description"); err != nil {
		return tool{}, err
	}
	raw, ok := fields["input_schema"]
	if !ok {
		return tool{}, streamerr.InvalidParam(at+".input_schema", "%s.input_schema is missing", at).WithCode(streamerr.CodeMissing)
	}
	read.Parameters, err = strict.Compact(at+".input_schema", raw)
	return read, err
}

// offer adds the tools of the prompt to the request: all but the deferred ones that nothing names
// yet. A deferred tool must not get lost: if nothing but a search on Anthropic's servers could find
// it, the prompt has it.
func (m *message) offer() {
	lost := m.tools.searched || !slices.ContainsFunc(m.tools.all, func(t tool) bool { return !t.deferred })
	chosen := m.request.GetToolChoice().GetName()
	for _, t := range m.tools.all {
		if name := t.GetName(); !t.deferred || lost || m.tools.named[name] || name == chosen {
			m.request.Tools, m.toolsAt = append(m.request.Tools, t.Tool), append(m.toolsAt, t.at)
		}
	}
	m.tools = tools{}
}

var toolModes = map[string]chatv1.ToolMode{
	"none": chatv1.ToolMode_TOOL_MODE_NONE, "auto": chatv1.ToolMode_TOOL_MODE_AUTO,
	"any": chatv1.ToolMode_TOOL_MODE_REQUIRED, "tool": chatv1.ToolMode_TOOL_MODE_REQUIRED,
}

func setToolChoice(m *message, param string, raw json.RawMessage) error {
	if strict.Empty(raw) {
		return nil
	}
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
