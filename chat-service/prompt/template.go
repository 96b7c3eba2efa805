package prompt

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/prompt/jinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Template is a compiled chat template. It is safe for concurrent use.
type Template struct {
	// Model is the name of the template's model, for errors. It must be set before the first Render.
	Model string
	// Around returns the text around the JSON arguments of a call, in the form of the model. Calls in
	// conversations have this form if the template does not write them; nil is the Hermes format. It
	// must be set before the first Render.
	Around func(tool string) (before, after string)

	compiled *jinja.Template
	globals  map[string]jinja.Value // special tokens by name, and the variables that transformers always sets
	source   string
	traits   Traits
}

// New compiles the source of a chat template, and finds its traits. tokens maps template variables,
// such as "bos_token", to the model's special tokens. A token that is not in the map is undefined in
// the template.
func New(source string, tokens map[string]string) (*Template, error) {
	compiled, err := jinja.Compile(source, time.Now)
	if err != nil {
		return nil, err
	}
	compiled.ReadJSON = func(text string) (jinja.Value, error) { return readValue(text, false) }
	t := &Template{
		compiled: compiled,
		globals:  map[string]jinja.Value{"documents": nil},
		source:   source,
	}
	for name, token := range tokens {
		t.globals[name] = token
	}
	t.probe()
	return t, nil
}

// Source returns the source of the template.
func (t *Template) Source() string { return t.source }

// Traits returns how the template treats parts of conversations.
func (t *Template) Traits() Traits { return t.traits }

// ShowsImages reports whether prompts can have images.
func (t *Template) ShowsImages() bool { return len(t.traits.ImageRoles) > 0 }

// Render checks the conversation and returns the prompt. Its errors are *streamerr.Error. When ctx's
// stream is stopped, Render soon returns the cause.
func (t *Template) Render(ctx context.Context, in Input) (string, error) {
	text, _, err := t.render(ctx, in)
	return text, err
}

// render is Render. It also returns the input in the form that the template has taken.
func (t *Template) render(ctx context.Context, in Input) (text string, taken Input, err error) {
	if err := check(in.Messages, jinja.MaxOutput); err != nil {
		return "", in, err
	}
	if !t.ShowsImages() {
		in.Messages = WithoutImages(in.Messages)
	}
	if !t.ShowsImages() && len(Images(in.Messages)) > 0 {
		return "", in, streamerr.InvalidParam("messages", "the conversation has an image, and the chat template of the model has no place for images").WithCode(streamerr.CodeUnsupportedValue)
	}
	tools, err := readTools(in.Tools, t.traits.Form.WholeTools)
	if err != nil {
		return "", in, err
	}
	asked := in
	in = t.adapt(ctx, in)
	text, err = t.attempt(ctx, in, tools, t.traits.Form)
	if _, no := refused(err); no {
		for other := range t.plainer(in) {
			if text, otherErr := t.attempt(ctx, other, tools, t.traits.Form); otherErr == nil {
				return text, other, nil
			}
		}
	}
	if cause := stream.Cause(ctx); cause != nil && errors.Is(err, cause) {
		return "", in, streamerr.As(cause)
	}
	if err != nil {
		return "", in, t.refusal(err, asked, len(in.Messages) == len(asked.Messages), func(begun Input) error {
			_, err := t.attempt(ctx, t.adapt(ctx, begun), tools, t.traits.Form)
			return err
		})
	}
	return text, in, nil
}

// adapt returns the input in the form that the template shows completely, by its traits.
func (t *Template) adapt(ctx context.Context, in Input) Input {
	in.Messages = replace(in.Messages, withoutNUL)
	in.Variables = t.effective(ctx, Clean(in.Variables))
	described := len(in.Tools) > 0 && !t.traits.Tools
	if described {
		in = t.described(in)
	}
	calls, results := called(in.Messages)
	native := t.showsCalls(len(in.Tools) > 0, calls) && (!described || t.traits.CallsAlone)
	switch {
	case !calls && !results:
	case native:
		in.Messages = identified(in.Messages, t.traits.IDs)
	default:
		in.Messages = t.spelled(in.Messages)
	}
	in.Messages = withImagesOfUsers(in.Messages, func(role string) bool { return slices.Contains(t.traits.ImageRoles, role) })
	if in.Messages = t.placed(in.Messages); calls && native {
		in.Messages = arranged(in.Messages, t.traits.Text, t.traits.ReasonedText, t.traits.OneCall)
	}
	return in
}

// showsCalls reports whether the template writes the calls, or else the results, of a conversation.
func (t *Template) showsCalls(offered, calls bool) bool {
	switch {
	case !calls:
		return t.traits.Results
	case offered:
		return t.traits.Calls
	default:
		return t.traits.CallsAlone
	}
}

// Verbatim returns the prompt exactly as transformers renders it, also where the template drops or
// refuses a part of the conversation that Render puts elsewhere.
func (t *Template) Verbatim(ctx context.Context, in Input) (string, error) {
	if err := check(in.Messages, jinja.MaxOutput); err != nil {
		return "", err
	}
	tools, err := readTools(in.Tools, false)
	if err != nil {
		return "", err
	}
	in.Messages = replace(in.Messages, func(m *chatv1.Message) *chatv1.Message {
		if m.GetRole() == roleDeveloper && t.traits.Developer == (Places{}) {
			m = copyOf(m)
			m.Role = roleSystem
		}
		return m
	})
	text, err := t.attempt(ctx, in, tools, Form{})
	if err != nil {
		return "", t.refusal(err, in, true, func(begun Input) error {
			_, err := t.attempt(ctx, begun, tools, Form{})
			return err
		})
	}
	return text, nil
}

// attempt renders an input in a form, or in another one if the template cannot use a value of it.
func (t *Template) attempt(ctx context.Context, in Input, tools jinja.Value, form Form) (string, error) {
	text, err := t.execute(ctx, in, tools, form)
	if calls, _ := called(in.Messages); !calls || !isUnusable(err) {
		return text, err
	}
	for _, other := range callForms {
		form.TextArguments, form.NoContent = other.TextArguments, other.NoContent
		if other, otherErr := t.execute(ctx, in, tools, form); otherErr == nil {
			return other, nil
		}
	}
	return text, err
}

// execute renders an input as it is.
func (t *Template) execute(ctx context.Context, in Input, tools jinja.Value, form Form) (string, error) {
	vars := make(map[string]jinja.Value, len(t.globals)+4)
	maps.Copy(vars, t.globals)
	if err := setVariables(vars, in.Variables); err != nil {
		return "", err
	}
	switch {
	case len(in.Tools) > 0:
		vars["tools"] = tools
	case form.NoTools == NullTools:
		vars["tools"] = nil
	case form.NoTools == EmptyTools:
		vars["tools"] = jinja.NewList()
	}
	if form.Functions {
		vars["functions"], vars["datetime"] = functions(in.Tools), time.Now().Format(time.DateOnly)
	}
	vars["add_generation_prompt"] = in.AddGenerationPrompt
	vars["messages"] = values(in.Messages, form)
	return t.compiled.Render(ctx, vars)
}

// refused returns the words with which a template refuses its input, or with which a value of it is
// unusable. ok is false for all other errors, which may quote values.
func refused(err error) (words string, ok bool) {
	if raised, ok := errors.AsType[*jinja.RaisedError](err); ok {
		return raised.Message, true
	}
	if unusable, ok := errors.AsType[*jinja.ValueError](err); ok {
		return unusable.Message, true
	}
	return "", false
}

// refusal converts a failure of the template to an error. The words of a template, such as "no", are
// for its authors, so the error also says where they apply. exact means that the template got as many
// turns as in has, and try renders a conversation.
func (t *Template) refusal(err error, in Input, exact bool, try func(Input) error) *streamerr.Error {
	if own, ok := errors.AsType[*streamerr.Error](err); ok {
		return own // of the variables
	}
	if words, ok := refused(err); ok {
		at := -1
		if place, ok := errors.AsType[*jinja.PlaceError](err); ok && exact {
			at = place.Message
		}
		if at < 0 {
			at = refusedTurn(words, in, try)
		}
		e := streamerr.InvalidParam("messages", "the chat template of %s refuses turn %d of %d, of the role %s: %s; leave the turn out or change it",
			cmp.Or(t.Model, "the model"), at+1, len(in.Messages), in.Messages[at].GetRole(), strings.TrimRight(words, ". "))
		e.Cause = err
		return e
	}
	return &streamerr.Error{Reason: streamerr.Internal, Message: "chat template: " + err.Error(), Cause: err}
}

// maxSearched bounds the size of a conversation, in bytes, whose refused turn is searched for: a search
// renders the conversation up to ten times.
const maxSearched = 1 << 20

// refusedTurn returns the number of the turn that a template refuses: the conversation up to it is the
// shortest that the template refuses for the same reason. In a large conversation it is the last.
func refusedTurn(words string, in Input, try func(Input) error) int {
	size := 0
	for _, m := range in.Messages {
		size += proto.Size(m)
	}
	if size > maxSearched {
		return len(in.Messages) - 1
	}
	return sort.Search(len(in.Messages)-1, func(last int) bool {
		begun := in
		begun.Messages = in.Messages[:last+1]
		again, ok := refused(try(begun))
		return ok && again == words
	})
}

// values returns a conversation as template values: mappings with role, content, and the other
// fields.
func values(messages []*chatv1.Message, form Form) jinja.Value {
	items := make([]jinja.Value, len(messages))
	for i, m := range messages {
		message := jinja.NewDict()
		items[i] = message
		set := message.Set
		set("role", m.GetRole())
		switch {
		case m.GetReasoning() != "" && form.Reasoning == reasoningPart:
			set("content", contentParts(m, m.GetReasoning()))
		case m.GetContent() == "" && len(m.GetToolCalls()) > 0 && form.NoContent:
			set("content", nil)
		case len(m.GetImages()) > 0:
			set("content", contentParts(m, ""))
		default:
			set("content", m.GetContent())
		}
		if m.GetName() != "" {
			set("name", m.GetName())
		}
		if m.GetReasoning() != "" && form.Reasoning != reasoningPart {
			set(cmp.Or(form.Reasoning, defaultReasoningField), m.GetReasoning())
		}
		if m.GetToolCallId() != "" {
			set("tool_call_id", m.GetToolCallId())
		}
		if len(m.GetToolCalls()) > 0 {
			set("tool_calls", calls(m.GetToolCalls(), form.TextArguments))
		}
	}
	return jinja.NewList(items...)
}
