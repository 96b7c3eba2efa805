package responses

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/customtool"
	"github.com/whence-dev/whence/api-service/responses/conversation"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// foreignTools are the tools that run on OpenAI's servers, or need a model that is trained on them.
// They are left out.
var foreignTools = []string{
	"web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11", "file_search", "mcp", "code_interpreter",
	"image_generation", "local_shell", "shell", "computer", "computer_use", "computer_use_preview", "apply_patch", "tool_search",
}

// setTools parses the functions that the model may call, custom tools, namespaces of both, and the search
// for tools at the client.
func setTools(r *body, param string, raw json.RawMessage) error {
	return r.addTools(param, raw, func(at, kind string, raw json.RawMessage) error {
		repeated, err := repeatedTool(at, kind, raw)
		r.settings.Tools = append(r.settings.Tools, repeated)
		return err
	})
}

// addTools adds the tools of an array, and calls added for each.
func (r *body) addTools(param string, raw json.RawMessage, added func(at, kind string, raw json.RawMessage) error) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		members, kind, err := r.kindOfTool(at, raw, "function", "custom", "namespace", conversation.ToolSearch)
		switch {
		case err != nil:
			return err
		case kind == "":
			continue
		case kind == conversation.ToolSearch && !conversation.AtClient(members):
			if err = r.in.Unsupported(at + "." + kind); err != nil {
				return err
			}
			continue
		case kind == "namespace":
			err = r.addNamespace(at, raw)
		default:
			err = r.addTool(at, kind, members, "", "")
		}
		if err == nil {
			err = added(at, kind, raw)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// offer adds the tools that the conversation offers, but for those whose name is taken: a tool may be
// found again.
func (r *body) offer(all []conversation.Offer) error {
	r.offering = true
	for _, o := range all {
		if err := r.addTools(o.At, o.Tools, func(string, string, json.RawMessage) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// repeatedTool returns a tool as the response repeats it. A function has all members that the API
// documents.
func repeatedTool(at, kind string, raw json.RawMessage) (json.RawMessage, error) {
	repeated, err := strict.Compact(at, raw)
	if err != nil || kind != "function" {
		return json.RawMessage(repeated), err
	}
	members, err := strict.Object(at, raw)
	if err != nil {
		return nil, err
	}
	b := []byte(repeated[:len(repeated)-1])
	for _, name := range []string{"description", "parameters", "strict"} {
		if _, ok := members[name]; !ok {
			b = append(append(append(b, `,"`...), name...), `":null`...)
		}
	}
	return append(b, '}'), nil
}

// kindOfTool returns the members of a tool and its type, which is "" for a tool that is left out.
func (r *body) kindOfTool(at string, raw json.RawMessage, supported ...string) (map[string]json.RawMessage, string, error) {
	members, err := strict.Object(at, raw)
	if err != nil {
		return nil, "", err
	}
	maps.DeleteFunc(members, func(_ string, raw json.RawMessage) bool { return strict.Null(raw) })
	kind, err := strict.Member(at, "type", members)
	switch {
	case err != nil || slices.Contains(supported, kind):
		return members, kind, err
	case slices.Contains(foreignTools, kind):
		at += "." + kind
	}
	return nil, "", r.in.Unsupported(at)
}

// A function is a tool under the name that the client knows, as far as that differs from a function
// of the model.
type function struct {
	Namespace, Name string
	Custom          bool `json:",omitempty"` // the tool takes a text
	Search          bool `json:",omitempty"` // the tool finds tools at the client
}

// addNamespace adds the tools of a namespace. Models know no namespaces, so each tool has the
// namespace's name before its own, and the first one has the namespace's description, too.
func (r *body) addNamespace(at string, raw json.RawMessage) error {
	members, err := r.in.Members(at, raw, "type", "name", "description", "tools")
	if err != nil {
		return err
	}
	namespace, err := strict.Member(at, "name", members)
	if err != nil {
		return err
	}
	description := ""
	if raw, ok := members["description"]; ok {
		if description, err = strict.String(at+".description", raw); err != nil {
			return err
		}
	}
	items, err := strict.Array(at+".tools", members["tools"])
	if err != nil {
		return err
	}
	for i, raw := range items {
		at := fmt.Sprintf("%s.tools[%d]", at, i)
		members, kind, err := r.kindOfTool(at, raw, "function", "custom")
		if err == nil && kind != "" {
			err = r.addTool(at, kind, members, namespace, description)
			description = ""
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addTool parses a function or a custom tool, which may be in a namespace. A required call is always
// strict; other calls never are. A custom tool is a function with one text. A grammar of the text is not
// enforced.
func (r *body) addTool(at, kind string, members map[string]json.RawMessage, namespace, about string) error {
	tool := &chatv1.Tool{}
	var err error
	switch kind {
	case "custom":
		err = r.customTool(at, members, tool)
	case conversation.ToolSearch:
		err = r.toolSearch(at, members, tool)
	default:
		err = r.function(at, members, tool)
	}
	if err != nil {
		return err
	}
	if raw, ok := members["description"]; ok {
		if tool.Description, err = strict.String(at+".description", raw); err != nil {
			return err
		}
	}
	if kind == "custom" && !customtool.Complete(tool, members["format"]) {
		if err := r.in.Unsupported(at + ".format"); err != nil {
			return err
		}
	}
	if raw, ok := members["defer_loading"]; ok { // the prompt always has all tools
		if deferred, err := strict.Boolean(at+".defer_loading", raw); err != nil {
			return err
		} else if deferred {
			r.in.Ignore(at + ".defer_loading")
		}
	}
	named := function{namespace, tool.GetName(), kind == "custom", kind == conversation.ToolSearch}
	if namespace != "" {
		tool.Name = conversation.Flat(named.Namespace, named.Name)
		tool.Description = strings.TrimSpace(about + "\n\n" + tool.GetDescription())
	}
	switch taken := r.taken[tool.GetName()]; {
	case taken && r.offering: // a tool may be found again
		return nil
	case taken && !r.in.Refuses(): // such as two servers of MCP may have: a call has only the name
		r.in.Ignore(at)
		return nil
	}
	r.taken[tool.GetName()] = true
	if namespace != "" || kind != "function" {
		r.functions[tool.GetName()] = named
	}
	r.request.Tools, r.toolOrigins = append(r.request.Tools, tool), append(r.toolOrigins, at)
	return nil
}

// function parses a function. The form of chats, with an inner object, is the same here.
func (r *body) function(at string, members map[string]json.RawMessage, tool *chatv1.Tool) (err error) {
	if raw, ok := members["function"]; ok && members["name"] == nil {
		inner, err := strict.Object(at+".function", raw)
		if err != nil {
			return err
		}
		maps.DeleteFunc(inner, func(_ string, raw json.RawMessage) bool { return strict.Null(raw) })
		delete(members, "function")
		maps.Copy(members, inner)
	}
	if err = r.in.Only(at, members, "type", "name", "description", "parameters", "strict", "defer_loading", "function"); err != nil {
		return err
	}
	if tool.Name, err = strict.Member(at, "name", members); err != nil {
		return err
	}
	if err = parameters(at, members, tool); err != nil {
		return err
	}
	if raw, ok := members["strict"]; ok {
		_, err = strict.Boolean(at+".strict", raw)
	}
	return err
}

func parameters(at string, members map[string]json.RawMessage, tool *chatv1.Tool) (err error) {
	if raw, ok := members["parameters"]; ok {
		tool.Parameters, err = strict.Compact(at+".parameters", raw)
	}
	return err
}

func (r *body) toolSearch(at string, members map[string]json.RawMessage, tool *chatv1.Tool) error {
	tool.Name = conversation.ToolSearch
	if err := r.in.Only(at, members, "type", "execution", "description", "parameters"); err != nil {
		return err
	}
	return parameters(at, members, tool)
}

func (r *body) customTool(at string, members map[string]json.RawMessage, tool *chatv1.Tool) (err error) {
	if err = r.in.Only(at, members, "type", "name", "description", "format", "defer_loading"); err != nil {
		return err
	}
	tool.Name, err = strict.Member(at, "name", members)
	return err
}

var toolModes = map[string]chatv1.ToolMode{
	"none": chatv1.ToolMode_TOOL_MODE_NONE, "auto": chatv1.ToolMode_TOOL_MODE_AUTO,
	"required": chatv1.ToolMode_TOOL_MODE_REQUIRED, "any": chatv1.ToolMode_TOOL_MODE_REQUIRED,
}

// modes are the words of toolModes in the order in which a refusal names them.
var modes = []string{"none", "auto", "required", "any"}

// setToolChoice parses a mode, a tool by name, or the allowed tools.
func setToolChoice(r *body, param string, raw json.RawMessage) error {
	if strict.Empty(raw) {
		return nil
	}
	choice := &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED}
	if raw[0] == '"' {
		word, err := strict.String(param, raw)
		if err == nil {
			err = strict.OneOf(param, word, modes...)
		}
		if err != nil {
			return err
		}
		choice.Mode = toolModes[word]
		r.settings.ToolChoice = marshal(word)
	} else if err := r.setToolChoiceObject(param, raw, choice); err != nil {
		return err
	}
	r.request.ToolChoice = choice
	return nil
}

func (r *body) setToolChoiceObject(param string, raw json.RawMessage, choice *chatv1.ToolChoice) error {
	members, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	kind, err := strict.Member(param, "type", members)
	if err != nil {
		return err
	}
	repeated, err := strict.Compact(param, raw)
	if err != nil {
		return err
	}
	r.settings.ToolChoice = json.RawMessage(repeated)
	switch {
	case slices.Contains(modes, kind):
		choice.Mode = toolModes[kind]
		return r.in.Only(param, members, "type")
	case kind == "allowed_tools":
		return r.setAllowed(param, members, choice)
	case slices.Contains(foreignTools, kind):
		return streamerr.InvalidParam(param, "%s asks for a call of the tool %s, which is left out here", param, kind).WithCode(streamerr.CodeUnsupportedValue)
	}
	if err = strict.OneOf(param+".type", kind, "function", "custom", "allowed_tools"); err == nil {
		choice.Name, err = r.nameOfTool(param, members)
	}
	return err
}

// setAllowed parses the tools that the model may call. Tools that are left out do not count.
func (r *body) setAllowed(param string, members map[string]json.RawMessage, choice *chatv1.ToolChoice) error {
	err := r.in.Only(param, members, "type", "mode", "tools")
	choice.Mode = chatv1.ToolMode_TOOL_MODE_AUTO
	if raw, ok := members["mode"]; ok && err == nil && !strict.Empty(raw) {
		var word string
		if word, err = strict.String(param+".mode", raw); err == nil {
			err = strict.OneOf(param+".mode", word, "auto", "required")
		}
		choice.Mode = toolModes[word]
	}
	if err != nil {
		return err
	}
	param += ".tools"
	raw, ok := members["tools"]
	if !ok {
		return streamerr.InvalidParam(param, "%s is missing", param).WithCode(streamerr.CodeMissing)
	}
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	r.allowed = make([]string, len(items)) // "" for a tool that is left out
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		members, kind, err := r.kindOfTool(at, raw, "function", "custom")
		if err == nil && kind != "" {
			r.allowed[i], err = r.nameOfTool(at, members)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nameOfTool returns the name of a tool as the model knows it. The form of chats is the same here.
func (r *body) nameOfTool(at string, members map[string]json.RawMessage) (string, error) {
	if err := r.in.Only(at, members, "type", "name", "namespace", "function", "custom"); err != nil {
		return "", err
	}
	for _, inner := range []string{"function", "custom"} {
		if raw, ok := members[inner]; ok && members["name"] == nil {
			named, err := strict.Object(at+"."+inner, raw)
			if err != nil {
				return "", err
			}
			return strict.Member(at+"."+inner, "name", named)
		}
	}
	name, err := strict.Member(at, "name", members)
	if raw, ok := members["namespace"]; ok && err == nil && !strict.Empty(raw) {
		var namespace string
		if namespace, err = strict.String(at+".namespace", raw); err == nil {
			name = conversation.Flat(namespace, name)
		}
	}
	return name, err
}

// chooseTools applies tool_choice to the tools that are left. A required call overrides the format of
// the text.
func (r *body) chooseTools() error {
	if err := r.allowTools(); err != nil {
		return err
	}
	choice := r.request.GetToolChoice()
	switch required := choice.GetMode() == chatv1.ToolMode_TOOL_MODE_REQUIRED; {
	case required && len(r.request.GetTools()) == 0:
		return streamerr.InvalidParam("tool_choice", "tool_choice asks for a call, but the request has no tool that can be called here").WithCode(streamerr.CodeUnsupportedValue)
	case required:
		r.guide, r.request.Sampling.Guide = "tool_choice", nil
	case len(r.request.GetTools()) == 0:
		r.request.ToolChoice = nil
	}
	return nil
}

// allowTools removes from the request the tools that tool_choice does not allow, so that the model
// does not see them.
func (r *body) allowTools() error {
	if r.allowed == nil {
		return nil
	}
	allowed := make(map[string]bool, len(r.allowed)) // by name: whether the request has such a tool
	for _, name := range r.allowed {
		allowed[name] = false
	}
	var tools []*chatv1.Tool
	var origins []string
	for i, tool := range r.request.GetTools() {
		if _, ok := allowed[tool.GetName()]; ok {
			allowed[tool.GetName()] = true
			tools, origins = append(tools, tool), append(origins, r.toolOrigins[i])
		}
	}
	for i, name := range r.allowed {
		if name != "" && !allowed[name] {
			at := fmt.Sprintf("tool_choice.tools[%d].name", i)
			return streamerr.InvalidParam(at, "%s is %q, but no tool has this name", at, strict.Printable(name))
		}
	}
	r.request.Tools, r.toolOrigins, r.allowed = tools, origins, nil
	return nil
}
