package responses

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/responses/conversation"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// setTools parses the functions that the model may call, and namespaces of functions. All other tools
// run on OpenAI's servers, or need a model that is trained on them. They are left out.
func setTools(r *body, param string, raw json.RawMessage) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		kind, err := r.kindOfTool(at, raw, "function", "namespace")
		switch {
		case err != nil:
			return err
		case kind == "":
			continue
		case kind == "namespace":
			err = r.addNamespace(at, raw)
		default:
			err = r.addFunction(at, raw, "", "")
		}
		if err != nil {
			return err
		}
		repeated, err := strict.Compact(at, raw)
		if err != nil {
			return err
		}
		r.settings.Tools = append(r.settings.Tools, json.RawMessage(repeated))
	}
	return nil
}

// kindOfTool returns the type of a tool, or "" for a tool that is left out.
func (r *body) kindOfTool(at string, raw json.RawMessage, supported ...string) (string, error) {
	members, err := strict.Object(at, raw)
	if err != nil {
		return "", err
	}
	kind, err := strict.Member(at, "type", members)
	switch {
	case err != nil || slices.Contains(supported, kind):
		return kind, err
	}
	return "", r.in.Unsupported(at)
}

// A function is a function of a namespace.
type function struct{ Namespace, Name string }

// addNamespace adds the functions of a namespace. Models know no namespaces, so each function has the
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
		kind, err := r.kindOfTool(at, raw, "function")
		if err == nil && kind != "" {
			err = r.addFunction(at, raw, namespace, description)
			description = ""
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addFunction parses a function, which may be in a namespace. A required call is always strict;
// other calls never are.
func (r *body) addFunction(at string, raw json.RawMessage, namespace, about string) error {
	members, err := r.in.Members(at, raw, "type", "name", "description", "parameters", "strict", "defer_loading")
	if err != nil {
		return err
	}
	tool := &chatv1.Tool{}
	if tool.Name, err = strict.Member(at, "name", members); err != nil {
		return err
	}
	if raw, ok := members["description"]; ok {
		if tool.Description, err = strict.String(at+".description", raw); err != nil {
			return err
		}
	}
	if raw, ok := members["parameters"]; ok {
		if tool.Parameters, err = strict.Compact(at+".parameters", raw); err != nil {
			return err
		}
	}
	if raw, ok := members["strict"]; ok {
		if _, err = strict.Boolean(at+".strict", raw); err != nil {
			return err
		}
	}
	if raw, ok := members["defer_loading"]; ok {
		if deferred, err := strict.Boolean(at+".defer_loading", raw); err != nil || deferred {
			return streamerr.InvalidParam(at+".defer_loading", "%s.defer_loading must be false: the prompt always has all tools", at).WithCode(streamerr.CodeUnsupportedValue)
		}
	}
	if namespace != "" {
		named := function{namespace, tool.GetName()}
		tool.Name = conversation.Flat(named.Namespace, named.Name)
		tool.Description = strings.TrimSpace(about + "\n\n" + tool.GetDescription())
		if r.functions == nil {
			r.functions = map[string]function{}
		}
		r.functions[tool.GetName()] = named
	}
	r.request.Tools, r.toolOrigins = append(r.request.Tools, tool), append(r.toolOrigins, at)
	return nil
}

var toolModes = map[string]chatv1.ToolMode{
	"none": chatv1.ToolMode_TOOL_MODE_NONE, "auto": chatv1.ToolMode_TOOL_MODE_AUTO, "required": chatv1.ToolMode_TOOL_MODE_REQUIRED,
}

// setToolChoice parses a mode, a function by name, or the allowed tools.
func setToolChoice(r *body, param string, raw json.RawMessage) error {
	choice := &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED}
	if raw[0] == '"' {
		word, err := strict.String(param, raw)
		if err == nil {
			err = strict.OneOf(param, word, "none", "auto", "required")
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
	if choice.GetMode() == chatv1.ToolMode_TOOL_MODE_REQUIRED {
		r.guide = param
	}
	return nil
}

func (r *body) setToolChoiceObject(param string, raw json.RawMessage, choice *chatv1.ToolChoice) error {
	members, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	kind, err := strict.Member(param, "type", members)
	if err == nil {
		err = strict.OneOf(param+".type", kind, "function", "allowed_tools")
	}
	if err != nil {
		return err
	}
	repeated, err := strict.Compact(param, raw)
	if err != nil {
		return err
	}
	r.settings.ToolChoice = json.RawMessage(repeated)
	if kind == "function" {
		if err = r.in.Only(param, members, "type", "name"); err == nil {
			choice.Name, err = strict.Member(param, "name", members)
		}
		return err
	}
	if err = r.in.Only(param, members, "type", "mode", "tools"); err != nil {
		return err
	}
	word, err := strict.Member(param, "mode", members)
	if err == nil {
		err = strict.OneOf(param+".mode", word, "auto", "required")
	}
	if err != nil {
		return err
	}
	choice.Mode = toolModes[word]
	r.allowed, err = allowedTools(r.in, param+".tools", members["tools"])
	return err
}

// allowedTools parses the names of functions.
func allowedTools(in *strict.Reading, param string, raw json.RawMessage) ([]string, error) {
	if raw == nil {
		return nil, streamerr.InvalidParam(param, "%s is missing", param).WithCode(streamerr.CodeMissing)
	}
	items, err := strict.Array(param, raw)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(items))
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		members, err := in.Members(at, raw, "type", "name")
		if err != nil {
			return nil, err
		}
		kind, err := strict.Member(at, "type", members)
		if err == nil {
			err = strict.OneOf(at+".type", kind, "function")
		}
		if err != nil {
			return nil, err
		}
		if names[i], err = strict.Member(at, "name", members); err != nil {
			return nil, err
		}
	}
	return names, nil
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
		if !allowed[name] {
			at := fmt.Sprintf("tool_choice.tools[%d].name", i)
			return streamerr.InvalidParam(at, "%s is %q, but no tool has this name", at, strict.Printable(name))
		}
	}
	r.request.Tools, r.toolOrigins, r.allowed = tools, origins, nil
	return nil
}
