package prompt

import (
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"

	"github.com/whence-dev/whence/chat-service/prompt/hfjinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Template is a chat template, compiled once. It is safe for concurrent use.
type Template struct {
	compiled *hfjinja.Template
	globals  map[string]jinja.Value // special tokens by name, and tools
	// knowsDeveloper says that the source names the role "developer". Such a template gets the role as it is; any other
	// would write a header that its model has never seen, so it gets "system", which developer messages stand in for.
	knowsDeveloper bool
}

// New compiles the source of a chat template. tokens are the model's special tokens by their names in templates, such as
// "bos_token"; one that is not set is undefined in the template.
func New(source string, tokens map[string]string) (*Template, error) {
	compiled, err := hfjinja.Compile(source, time.Now)
	if err != nil {
		return nil, err
	}
	t := &Template{
		compiled:       compiled,
		globals:        map[string]jinja.Value{"tools": jinja.None(), "documents": jinja.None()},
		knowsDeveloper: strings.Contains(source, "'developer'") || strings.Contains(source, `"developer"`),
	}
	for name, token := range tokens {
		t.globals[name] = jinja.NewString(token)
	}
	return t, nil
}

// Render checks the conversation and returns the prompt. Its errors are *streamerr.Error.
func (t *Template) Render(in Input) (string, error) {
	if err := check(in.Messages, hfjinja.MaxOutput); err != nil {
		return "", err
	}
	vars := make(map[string]jinja.Value, len(t.globals)+2)
	maps.Copy(vars, t.globals)
	vars["messages"] = t.messages(in.Messages)
	vars["add_generation_prompt"] = jinja.NewBool(in.AddGenerationPrompt)
	text, err := t.compiled.Render(vars)
	if err == nil {
		return text, nil
	}
	if raised, ok := errors.AsType[*hfjinja.RaisedError](err); ok {
		return "", &streamerr.Error{
			Reason: streamerr.Invalid, Param: "messages", Message: raised.Message, Cause: err,
		}
	}
	if unusable, ok := errors.AsType[*hfjinja.ValueError](err); ok {
		return "", &streamerr.Error{
			Reason: streamerr.Invalid, Param: "messages", Cause: err,
			Message: "the model's chat template cannot write these messages: " + unusable.Message,
		}
	}
	// The library quotes values in some errors, and values are prompts: keep what comes before them.
	detail, _, _ := strings.Cut(err.Error(), " is not callable: ")
	return "", &streamerr.Error{Reason: streamerr.Internal, Message: "chat template: " + detail, Cause: err}
}

// messages returns the conversation as the template sees it: mappings with role, content, and name where there is one.
func (t *Template) messages(messages []*chatv1.Message) jinja.Value {
	items := make([]jinja.Value, len(messages))
	for i, m := range messages {
		role := m.GetRole()
		if role == "developer" && !t.knowsDeveloper {
			role = "system"
		}
		items[i] = jinja.NewDict()
		items[i].AsDict().Set("role", jinja.NewString(role))
		items[i].AsDict().Set("content", jinja.NewString(m.GetContent()))
		if name := m.GetName(); name != "" {
			items[i].AsDict().Set("name", jinja.NewString(name))
		}
	}
	return jinja.NewList(items)
}
