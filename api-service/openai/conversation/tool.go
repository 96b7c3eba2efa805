package conversation

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/customtool"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// kinds are the kinds of tools that run on OpenAI's servers, or that only some clients know. Their
// names may stand in whence-ignored.
var kinds = []string{
	"apply_patch", "bash", "browser_search", "code_interpreter", "computer", "computer_use", "computer_use_preview", "file_search", "google_search", "image_generation",
	"local_shell", "mcp", "memory", "namespace", "shell", "text_editor", "tool_search", "web_fetch", "web_search", "web_search_preview",
}

// Tools are the tools that a model may call.
type Tools struct {
	List []*chatv1.Tool
	// Custom has the names of custom tools: their calls have one text instead of arguments.
	Custom map[string]bool

	// Functions counts the functions and custom tools, also those that were left out for their name.
	Functions int

	names map[string]bool
}

// Add parses tools in OpenAI's form, with the members of a function in a member of its own or not, or
// in Anthropic's. Tools of other kinds than functions and custom tools are left out, and so is a second tool of
// a name, such as two servers of MCP may have: a call has only the name.
func (t *Tools) Add(in *strict.Reading, param string, raw json.RawMessage) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	for i, raw := range items {
		if err := t.add(in, fmt.Sprintf("%s[%d]", param, i), raw); err != nil {
			return err
		}
	}
	return nil
}

// AddFunctions is Add for functions in the older form, which have no type.
func (t *Tools) AddFunctions(in *strict.Reading, param string, raw json.RawMessage) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		fields, err := in.Members(at, raw, functionMembers...)
		if err == nil {
			_, err = t.make(in, at, fields)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// functionMembers are the members of a function.
var functionMembers = []string{"name", "description", "parameters", "strict"}

func (t *Tools) add(in *strict.Reading, at string, raw json.RawMessage) error {
	outer, err := strict.Object(at, raw)
	if err != nil {
		return err
	}
	if schema, ok := outer["input_schema"]; ok { // Anthropic's form, in which custom is a function
		delete(outer, "input_schema")
		outer["type"], outer["parameters"] = json.RawMessage(`"function"`), schema
	}
	kind, err := kindOfCall(at, outer)
	names := functionMembers
	switch {
	case err != nil && len(outer) > 0 && strict.Empty(outer["type"]): // its kind is the name of a member
		return in.Unsupported(at)
	case err != nil:
		return err
	case kind == "custom":
		names = []string{"name", "description", "format"}
	case kind != "function" && slices.Contains(kinds, kind):
		return in.Unsupported(at + "." + kind)
	case kind != "function":
		return in.Unsupported(at)
	}
	at, fields, err := innerOf(in, at, kind, outer, names...)
	if err != nil {
		return err
	}
	tool, err := t.make(in, at, fields)
	if err != nil || tool == nil || kind == "function" {
		return err
	}
	if t.Custom == nil {
		t.Custom = map[string]bool{}
	}
	t.Custom[tool.GetName()] = true
	if !customtool.Complete(tool, fields["format"]) {
		return in.Unsupported(at + ".format")
	}
	return nil
}

// make adds the tool with the given members, and returns it, or nil if another tool has its name.
func (t *Tools) make(in *strict.Reading, at string, fields map[string]json.RawMessage) (*chatv1.Tool, error) {
	tool := &chatv1.Tool{}
	var err error
	if tool.Name, err = strict.Member(at, "name", fields); err != nil {
		return nil, err
	}
	t.Functions++
	if t.names[tool.GetName()] && !in.Refuses() {
		in.Ignore(at)
		return nil, nil //nolint:nilnil // the tool is left out, which is not an error
	}
	if t.names == nil {
		t.names = map[string]bool{}
	}
	t.names[tool.GetName()] = true
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
	t.List = append(t.List, tool)
	return tool, nil
}

// kindOfCall returns the type of a tool, a call or a choice; without one, that of its member, or
// "function" for one that has its name beside.
func kindOfCall(at string, outer map[string]json.RawMessage) (string, error) {
	if raw, ok := outer["type"]; ok && !strict.Null(raw) {
		return strict.String(at+".type", raw)
	}
	for _, member := range []string{"function", "custom"} {
		if !strict.Empty(outer[member]) {
			return member, nil
		}
	}
	if !strict.Empty(outer["name"]) {
		return "function", nil
	}
	return strict.Member(at, "type", outer)
}

// innerOf returns the member of a tool, a call or a choice that is named like its kind, and its
// path, or the object itself if that has a name. Other members than the named ones are left out.
func innerOf(in *strict.Reading, at, kind string, outer map[string]json.RawMessage, names ...string) (string, map[string]json.RawMessage, error) {
	raw, ok := outer[kind]
	if !ok || strict.Null(raw) {
		if _, flat := outer["name"]; flat {
			return at, outer, in.Only(at, outer, append(names, "type", "id", "index", "cache_control")...)
		}
		return at, nil, streamerr.InvalidParam(at+"."+kind, "%s.%s is missing", at, kind).WithCode(streamerr.CodeMissing)
	}
	if err := in.Only(at, outer, "type", kind, "id", "index", "cache_control"); err != nil {
		return at, nil, err
	}
	at += "." + kind
	fields, err := strict.Object(at, raw)
	if err == nil {
		err = in.Only(at, fields, names...)
	}
	return at, fields, err
}

// calls parses the tool calls of an assistant's message.
func (c *Conversation) calls(param string, number int, raw json.RawMessage, m *chatv1.Message) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		outer, err := strict.Object(at, raw)
		if err == nil {
			err = c.call(at, fmt.Sprintf("call_%d_%d", number, i), outer, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// call parses a call of an assistant's message. A call without an id gets the given one.
func (c *Conversation) call(at, id string, outer map[string]json.RawMessage, m *chatv1.Message) error {
	kind, err := kindOfCall(at, outer)
	if err != nil {
		return err
	}
	if kind != "function" && kind != "custom" {
		return c.in.Unsupported(at)
	}
	if raw := outer["id"]; !strict.Empty(raw) {
		if id, err = strict.String(at+".id", raw); err != nil {
			return err
		}
	}
	at, fields, err := innerOf(c.in, at, kind, outer, "name", "arguments", "input", "parsed_arguments", "index")
	if err != nil {
		return err
	}
	return c.made(at, id, fields, m)
}

// nameless is the name of a call that has none, because it was cut off.
const nameless = "unknown"

// made adds a call to an assistant's message. The call of a custom tool has an input.
func (c *Conversation) made(at, id string, fields map[string]json.RawMessage, m *chatv1.Message) (err error) {
	call := &chatv1.ToolCall{Id: id, Name: nameless, Arguments: argumentsOf(fields["arguments"])}
	if raw := fields["name"]; !strict.Empty(raw) {
		if call.Name, err = strict.String(at+".name", raw); err != nil {
			return err
		}
	}
	if raw, ok := fields["input"]; ok && !strict.Null(raw) {
		call.Arguments = customtool.Arguments(textOf(raw))
	}
	if !strict.Empty(fields["parsed_arguments"]) {
		c.in.Ignore(at + ".parsed_arguments")
	}
	m.ToolCalls = append(m.ToolCalls, call)
	c.open = append(c.open, call)
	c.open = c.open[max(0, len(c.open)-maxOpen):]
	return nil
}

// argumentsOf returns the arguments of a call: a text, which need not be JSON, or any other value as
// JSON. Some servers send an empty text for a call without arguments.
func argumentsOf(raw json.RawMessage) string {
	text, err := strict.String("", raw)
	switch {
	case err != nil && !strict.Empty(raw):
		return string(raw)
	case strings.TrimSpace(text) == "":
		return "{}"
	default:
		return text
	}
}

// textOf returns a string, or any other value as JSON.
func textOf(raw json.RawMessage) string {
	if text, err := strict.String("", raw); err == nil {
		return text
	}
	return string(raw)
}

// inFunction matches members of tools and calls that are one level deeper in OpenAI's JSON than in
// the IDL.
var inFunction = regexp.MustCompile(`^((?:tools|messages\[\d+\]\.tool_calls)\[\d+\])\.(name|description|parameters|arguments)$`)

// Param converts a field name of the IDL to its name in the JSON of a conversation.
func Param(inner string) string {
	return strings.TrimSuffix(inFunction.ReplaceAllString(inner, "$1.function.$2"), ".reasoning")
}
