package prompt

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/whence-dev/whence/chat-service/prompt/jinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxTools bounds the tools of a request: a guide for a call of each, and for a response format, has
// at most 256 forms.
const maxTools = 250

// toolName matches the names of tools. MCP's and Gemini's have points, slashes and colons, too.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_./:-]{1,128}$`)

// noParameters are the parameters of a tool that has none, for a template that needs them.
const noParameters = `{"type": "object", "properties": {}}`

// readTools converts tools to the form in which transformers passes them to templates, which is
// OpenAI's. With whole, tools without a description or parameters get empty ones. It refuses invalid
// tools, and more than jinja.MaxOutput bytes.
func readTools(tools []*chatv1.Tool, whole bool) (jinja.Value, error) {
	if len(tools) > maxTools {
		return nil, streamerr.InvalidParam("tools", "there are %d tools; at most %d are allowed", len(tools), maxTools)
	}
	items, size, seen := make([]jinja.Value, len(tools)), 0, map[string]bool{}
	for i, tool := range tools {
		at := fmt.Sprintf("tools[%d]", i)
		name := tool.GetName()
		switch {
		case !toolName.MatchString(name):
			return nil, streamerr.InvalidParam(at+".name", "%s.name is %.80q; it must have 1 to 128 characters, which may be the letters a-z and A-Z, digits, _, -, ., / and :", at, name)
		case seen[name]:
			return nil, streamerr.InvalidParam(at+".name", "%s.name is %q, but another tool already has this name", at, name)
		}
		seen[name] = true
		if err := checkText(at+".description", tool.GetDescription()); err != nil {
			return nil, err
		}
		if size += len(tool.GetDescription()) + len(tool.GetParameters()); size > jinja.MaxOutput {
			return nil, streamerr.InvalidParam("tools", "the descriptions and parameters of all tools must not have more than %d bytes together", jinja.MaxOutput)
		}
		function := jinja.NewDict()
		function.Set("name", name)
		if tool.GetDescription() != "" || whole {
			function.Set("description", Clean(tool.GetDescription()))
		}
		text := tool.GetParameters()
		if text == "" && whole {
			text = noParameters
		}
		if text != "" {
			if err := checkText(at+".parameters", text); err != nil {
				return nil, err
			}
			parameters, err := readObject(Clean(text), false)
			if err != nil {
				return nil, streamerr.InvalidParam(at+".parameters", "%s.parameters must be a JSON object: %v", at, err)
			}
			function.Set("parameters", parameters)
		}
		items[i] = typed(jinja.NewDict(), function)
	}
	return jinja.NewList(items...), nil
}

// functions returns tools as a JSON text.
func functions(tools []*chatv1.Tool) string {
	all := make([]string, len(tools))
	for i, tool := range tools {
		all[i] = signature(tool)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// typed puts a function into OpenAI's envelope.
func typed(envelope, function *jinja.Dict) *jinja.Dict {
	envelope.Set("type", "function")
	envelope.Set("function", function)
	return envelope
}

// calls converts the calls of an assistant's turn to template values. Most templates expect the
// arguments as an object, as transformers recommends; some can only concatenate strings.
func calls(of []*chatv1.ToolCall, asText bool) jinja.Value {
	items := make([]jinja.Value, len(of))
	for i, call := range of {
		function := jinja.NewDict()
		function.Set("name", call.GetName())
		if asText {
			function.Set("arguments", textOf(call.GetArguments()))
		} else {
			_, arguments := objectOf(call.GetArguments())
			function.Set("arguments", arguments)
		}
		envelope := jinja.NewDict()
		envelope.Set("id", call.GetId())
		items[i] = typed(envelope, function)
	}
	return jinja.NewList(items...)
}

// reserved are the variables that a request must not set: other parts of the request, and functions
// that templates call.
var reserved = map[string]bool{
	"messages": true, "tools": true, "documents": true, "add_generation_prompt": true,
	"bos_token": true, "eos_token": true, "unk_token": true, "pad_token": true,
	"raise_exception": true, "strftime_now": true, "range": true, "namespace": true, "dict": true, "cycler": true, "joiner": true,
}

// setVariables adds the variables of a request.
func setVariables(vars map[string]jinja.Value, text string) error {
	const param = "template_variables"
	if text == "" {
		return nil
	}
	if err := checkText(param, text); err != nil {
		return err
	}
	object, err := readObject(Clean(text), false)
	if err != nil {
		return streamerr.InvalidParam(param, "%s must be a JSON object: %v", param, err)
	}
	for name, value := range object.All() {
		if reserved[name] {
			return streamerr.InvalidParam(param, "%s must not set %q", param, name)
		}
		vars[name] = value
	}
	return nil
}
