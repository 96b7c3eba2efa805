package prompt

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"

	"github.com/whence-dev/whence/chat-service/prompt/hfjinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// Traits are what a chat template does with parts of a conversation that templates treat
// differently. New finds them by rendering small conversations.
type Traits struct {
	System, Developer Places   // where it writes system texts of these roles
	Calls             bool     // it writes calls and their results if tools are offered
	CallsAlone        bool     // it writes calls and their results if no tools are offered
	Results           bool     // it writes results of tools without a call
	Form              Form     // in which it takes a turn with calls
	ShortIDs          bool     // it takes only ids of nine letters and digits
	Efforts           []string // the values of reasoning_effort that it takes, the weakest first; nil if it takes any
	Switches          []string // the variables that turn thinking off
	ImageRoles        []string // the roles whose turns may have images
	Written           Written  // how it writes parts of a conversation
}

// Describe returns the traits for callers.
func (t *Traits) Describe() *chatv1.ChatTemplate {
	return &chatv1.ChatTemplate{
		System: t.System.names(), Developer: t.Developer.names(), Calls: t.Calls, Images: t.ImageRoles,
		Efforts: t.Efforts, LimitsEfforts: t.Efforts != nil, Switches: t.Switches,
	}
}

// A Form is the form of an assistant's turn with calls for a template.
type Form struct {
	TextArguments bool // the arguments are text, because the template concatenates them
	NoContent     bool // a content without text is none and not "", because the template writes the calls only then
	// Reasoning is the field of the reasoning, or "content" for a part of the content.
	Reasoning string
}

// forms are the forms of calls; most templates take the first.
var forms = []Form{{}, {TextArguments: true}, {NoContent: true}, {TextArguments: true, NoContent: true}}

// The texts of probes. A template that shows a turn writes its text unchanged.
const (
	probeA = "Xqalpha"
	probeB = "Xqbeta"
	probeC = "Xqgamma"
	probeD = "Xqdelta"
	probeE = "Xqepsilon"
)

// maxProbing bounds the time of all probes of a template, which comes with a model and is not
// trusted. Probes take milliseconds.
const maxProbing = 20 * time.Second

// probe finds the traits of a template.
func (t *Template) probe() {
	ctx, cancel := context.WithTimeout(context.Background(), maxProbing)
	defer cancel()
	all := Places{true, true, true}
	found := Traits{System: all, Calls: true, CallsAlone: true, Results: true}
	if t.knowsDeveloper {
		found.Developer = all
	}
	t.traits = found
	if !t.shows(ctx, turns(roleUser, probeA)) {
		return // it is no template for conversations of this kind
	}
	found.System = t.places(ctx, roleSystem)
	if t.knowsDeveloper {
		found.Developer = t.places(ctx, roleDeveloper)
	}
	t.probeCalls(ctx, &found)
	found.Written, found.Form.Reasoning = t.writtenBy(ctx, found.Form)
	t.traits.Form = found.Form // for the next probes
	found.Results = t.shows(ctx, turns(roleUser, probeA, roleAssistant, probeB, roleTool, probeC, roleUser, probeD))
	found.ImageRoles = t.imageRoles(ctx)
	for _, name := range thinkingVariables {
		off, ok := t.try(ctx, turns(roleUser, probeA), `{"`+name+`":false}`)
		if on, _ := t.try(ctx, turns(roleUser, probeA), `{"`+name+`":true}`); ok && on != off {
			found.Switches = append(found.Switches, name)
		}
	}
	found.Efforts = t.efforts(ctx)
	t.traits = found
}

// turns returns a conversation of roles and contents.
func turns(of ...string) (all []*chatv1.Message) {
	for pair := range slices.Chunk(of, 2) {
		all = append(all, &chatv1.Message{Role: pair[0], Content: pair[1]})
	}
	return all
}

// try renders a conversation as it is.
func (t *Template) try(ctx context.Context, messages []*chatv1.Message, variables string) (text string, ok bool) {
	text, err := t.execute(ctx, Input{Messages: messages, AddGenerationPrompt: true, Variables: variables}, jinja.None(), t.traits.Form)
	return text, err == nil
}

// shows reports whether the template writes all contents of some conversations.
func (t *Template) shows(ctx context.Context, conversations ...[]*chatv1.Message) bool {
	for _, messages := range conversations {
		text, ok := t.try(ctx, messages, "")
		for _, m := range messages {
			ok = ok && strings.Contains(text, m.GetContent())
		}
		if !ok {
			return false
		}
	}
	return true
}

// places returns where the template writes system texts of a role. Every turn of a probe must be
// written, because some templates replace one turn by another.
func (t *Template) places(ctx context.Context, role string) Places {
	return Places{
		First: t.shows(ctx, turns(role, probeA, roleUser, probeB)),
		Leading: t.shows(ctx,
			turns(role, probeA, role, probeB, roleUser, probeC),
			turns(roleSystem, probeA, role, probeB, roleUser, probeC)),
		Later: t.shows(ctx,
			turns(roleUser, probeA, role, probeB),
			turns(roleUser, probeA, role, probeB, roleUser, probeC),
			turns(roleUser, probeA, roleAssistant, probeB, role, probeC, roleUser, probeD),
			turns(roleSystem, probeA, roleUser, probeB, roleAssistant, probeC, role, probeD, roleUser, probeE)),
	}
}

// conversationWithCall returns a conversation with a call of this id.
func conversationWithCall(id string) []*chatv1.Message {
	return []*chatv1.Message{
		{Role: roleUser, Content: probeA},
		{Role: roleAssistant, ToolCalls: []*chatv1.ToolCall{{Id: id, Name: probeB, Arguments: `{"x": "` + probeC + `"}`}}},
		{Role: roleTool, ToolCallId: id, Content: probeD},
	}
}

// probeCalls finds whether the template writes calls and their results, and in which form it takes
// their arguments and ids.
func (t *Template) probeCalls(ctx context.Context, found *Traits) {
	offered, _ := readTools([]*chatv1.Tool{{Name: probeB, Description: probeA, Parameters: `{"type":"object","properties":{}}`}}) // is valid
	writes := func(id string, tools jinja.Value, form Form) bool {
		text, err := t.execute(ctx, Input{Messages: conversationWithCall(id)}, tools, form)
		return err == nil && strings.Contains(text, probeC) && strings.Contains(text, probeD) // probeB is in the tools
	}
	const short, long = "callabc12", "call_1"
	at := slices.IndexFunc(forms, func(form Form) bool { return writes(short, offered, form) || writes(short, jinja.None(), form) })
	if at < 0 {
		found.Calls, found.CallsAlone = false, false
		return
	}
	found.Form = forms[at]
	found.Calls, found.CallsAlone = writes(short, offered, found.Form), writes(short, jinja.None(), found.Form)
	found.ShortIDs = !writes(long, offered, found.Form) && !writes(long, jinja.None(), found.Form)
}

// isUnusable reports whether a template could not use a value.
func isUnusable(err error) bool {
	_, unusable := errors.AsType[*hfjinja.ValueError](err)
	return unusable
}

// imageRoles returns the roles in whose turns the template writes the placeholder of an image, which
// it writes in a turn of the user.
func (t *Template) imageRoles(ctx context.Context) []string {
	if !t.knowsImages {
		return nil
	}
	// shown returns the prompt of a conversation whose turn with the text probeD has an image.
	shown := func(messages []*chatv1.Message) string {
		at := slices.IndexFunc(messages, func(m *chatv1.Message) bool { return m.GetContent() == probeD })
		messages[at].Images = []*chatv1.PlacedImage{{Image: &llmv1.Image{}}}
		text, _ := t.try(ctx, messages, "") // "" shows nothing
		return text
	}
	without, _ := t.try(ctx, turns(roleUser, probeD), "")
	placeholder := inserted(without, shown(turns(roleUser, probeD)))
	if placeholder == "" {
		return nil
	}
	roles := []string{roleUser}
	for role, messages := range map[string][]*chatv1.Message{
		roleTool: conversationWithCall("callabc12"), roleAssistant: turns(roleUser, probeA, roleAssistant, probeD, roleUser, probeB),
	} {
		if text := shown(messages); strings.Contains(text, placeholder) && strings.Contains(text, probeD) {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return roles
}

// inserted returns the text that with has before probeD and without has not.
func inserted(without, with string) string {
	before, _, _ := strings.Cut(without, probeD)
	after, _, shown := strings.Cut(with, probeD)
	if !shown {
		return ""
	}
	common := 0
	for common < min(len(before), len(after)) && before[common] == after[common] {
		common++
	}
	return strings.TrimSuffix(after[common:], before[common:])
}
