package anthropic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// tools are the tools of a body.
type tools struct {
	all      []tool
	defined  []tool          // in messages
	searched bool            // Anthropic's servers would search the deferred tools
	named    map[string]bool // the tools that the messages name: whether the model may call them
}

// refer notes that a message calls a tool, or refers to it.
func (ts *tools) refer(name string) { ts.name(name, true) }

// name notes that a message adds or removes a tool.
func (ts *tools) name(name string, added bool) {
	if ts.named == nil {
		ts.named = map[string]bool{}
	}
	ts.named[name] = added
}

// A tool is a tool that the client runs.
type tool struct {
	*chatv1.Tool
	at       string // its path in the body
	deferred bool   // the prompt has the tool once it is named
}

// serverTools are the kinds of tools that Anthropic's servers run or describe, without their dates.
var serverTools = []string{
	"advisor", "bash", "browser_toolset", "code_execution", "computer", "computer_toolset", "mcp_toolset", "memory", "text_editor", toolSearch + "_bm25", toolSearch + "_regex", "web_fetch", "web_search",
}

const toolSearch = "tool_search_tool"

func setTools(m *message, param string, raw json.RawMessage) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	for i, raw := range items {
		read, err := m.tools.read(m.in, fmt.Sprintf("%s[%d]", param, i), raw)
		if err != nil {
			return err
		}
		m.tools.all = append(m.tools.all, read...)
	}
	return nil
}

// read parses a tool. It returns nothing for a tool that Anthropic's servers run or describe, which
// is left out.
func (ts *tools) read(in *strict.Reading, at string, raw json.RawMessage) ([]tool, error) {
	fields, err := strict.Object(at, raw)
	if err != nil {
		return nil, err
	}
	kind, err := (&block{at: at, fields: fields}).optional("type")
	if kind == "function" {
		kind = ""
		at, fields, err = functionOf(at, fields)
	}
	switch {
	case err != nil:
		return nil, err
	case kind != "" && kind != "custom":
		return nil, ts.leave(in, at, kind)
	}
	read, err := toolOf(in, at, fields)
	return []tool{read}, err
}

// functionOf converts a function in OpenAI's form, with its members in a member of its own or not.
func functionOf(at string, fields map[string]json.RawMessage) (string, map[string]json.RawMessage, error) {
	if inner := fields["function"]; !strict.Empty(inner) {
		var err error
		if fields, err = strict.Inner(at, "function", fields); err != nil {
			return at, nil, err
		}
		at += ".function"
	}
	if schema, ok := fields["parameters"]; ok {
		fields["input_schema"] = schema
		delete(fields, "parameters")
	}
	return at, fields, nil
}

// leave leaves out a tool whose type is a kind with a date.
func (ts *tools) leave(in *strict.Reading, at, kind string) error {
	ts.searched = ts.searched || strings.HasPrefix(kind, toolSearch)
	for _, known := range serverTools {
		if kind == known || strings.HasPrefix(kind, known+"_2") {
			return in.Unsupported(at + "." + known)
		}
	}
	return in.Unsupported(at)
}

// changes adds and removes the tools of a summary.
func (b *block) changes(t target) error {
	all, err := blocks(b.in, b.at+".tool_changes", b.fields["tool_changes"])
	for i := 0; i < len(all) && err == nil; i++ {
		err = all[i].change(t.tools)
	}
	return err
}

// change adds a tool to the tools that the model may call, or removes one.
func (b *block) change(ts *tools) error {
	added := b.kind == "tool_addition"
	if strict.Empty(b.fields["tool"]) {
		return b.leave()
	}
	of := block{in: b.in, at: b.at + ".tool"}
	var err error
	if of.fields, err = strict.Inner(b.at, "tool", b.fields); err != nil {
		return err
	}
	if of.kind, err = of.optional("type"); err != nil {
		return err
	}
	switch raw := of.fields["definition"]; {
	case of.kind == "tool_reference":
		name, err := of.optional("name")
		ts.name(name, added)
		return err
	case of.kind == "tool_definition" && added && len(raw) > 0:
		read, err := ts.read(b.in, of.at+".definition", raw)
		for _, t := range read {
			ts.defined = append(ts.defined, t)
			ts.refer(t.GetName())
		}
		return err
	}
	return b.leave() // of a server that only Anthropic's servers reach
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
	if raw := fields["input_schema"]; len(raw) > 0 && !strict.Null(raw) { // else the tool has no arguments
		read.Parameters, err = strict.Compact(at+".input_schema", raw)
	}
	return read, err
}

// offer adds the tools of the prompt to the request: all but those that a message has removed, and
// the deferred ones that nothing names yet. A deferred tool must not get lost: if nothing but a
// search on Anthropic's servers could find it, the prompt has it.
func (m *message) offer() {
	ts := &m.tools
	lost := ts.searched || !slices.ContainsFunc(ts.all, func(t tool) bool { return !t.deferred })
	latest := map[string]string{} // the path of the tool, by its name
	for _, t := range ts.defined {
		latest[t.GetName()] = t.at
	}
	chosen := m.request.GetToolChoice().GetName()
	for _, t := range slices.Concat(ts.all, ts.defined) {
		name := t.GetName()
		if at, again := latest[name]; again && at != t.at {
			continue
		}
		if added, named := ts.named[name]; name == chosen || added || !named && (!t.deferred || lost) {
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
	if raw[0] == '"' { // the form of other APIs
		raw = slices.Concat(json.RawMessage(`{"type":`), raw, json.RawMessage("}"))
	}
	fields, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	kind, err := strict.Member(param, "type", fields)
	if kind == "required" {
		kind = "any"
	}
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
