package prompt

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/chat-service/prompt/jinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// The texts of probes. A template that shows a turn writes its text unchanged. No text contains
// another one.
const (
	probeA = "Xqalpha"
	probeB = "Xqbeta"
	probeC = "Xqgamma"
	probeD = "Xqdelta"
	probeE = "Xqepsilon"
	probeF = "Xqiota"
	probeG = "Xqkappa"
	probeH = "Xqlambda"
)

// maxProbing bounds the time of all probes of a template, which comes with a model and is not
// trusted. Probes take milliseconds.
const maxProbing = 20 * time.Second

// A prober renders small conversations with a template.
type prober struct {
	execute func(Input, jinja.Value, Form) (string, error)
	form    Form
	ids     IDs
	offered jinja.Value // tools for conversations with tools
	offers  bool        // conversations with calls have tools
	// blind means that the template does not write the text of a user. It shows a conversation that it
	// does not refuse.
	blind bool
}

// probe finds the traits of a template.
func (t *Template) probe() {
	ctx, cancel := context.WithTimeout(context.Background(), maxProbing)
	defer cancel()
	p := &prober{execute: func(in Input, tools jinja.Value, form Form) (string, error) { return t.execute(ctx, in, tools, form) }}
	p.offered, _ = readTools(writtenTools, true) // are valid
	t.traits = Traits{System: Places{First: true, Leading: true, Later: true}, Tools: true, Calls: true, CallsAlone: true, Results: true}
	found := t.traits
	text, ok := p.withoutTools()
	if !ok {
		return // it is no template for conversations
	}
	p.blind = !strings.Contains(text, probeA)
	found.ChatML = strings.Contains(text, "<|im_start|>")
	found.System, found.Developer = p.places(roleSystem), Places{}
	if p.knowsDeveloper() {
		found.Developer = p.places(roleDeveloper)
	}
	found.Efforts, found.Switches = p.efforts(), p.switches()
	found.Results = p.shows(turns(roleUser, probeA, roleAssistant, probeB, roleTool, probeC, roleUser, probeD))
	found.Tools = p.tools(&found.Written)
	p.calls(&found)
	found.ImageRoles = p.imageRoles()
	found.Form, found.IDs = p.form, p.ids
	t.traits = found
}

// withoutTools finds the form in which the template takes a conversation without tools, and returns
// its prompt. A form in which it writes none as a word is the last choice.
func (p *prober) withoutTools() (text string, ok bool) {
	best := -1
	var form Form
	for _, p.form = range []Form{{}, {NoTools: UndefinedTools}, {NoTools: EmptyTools}, {Functions: true}} {
		prompt, taken := p.try(Input{Messages: turns(roleUser, probeA)})
		if n := nones(prompt); taken && (best < 0 || n < best) {
			text, ok, best, form = prompt, true, n, p.form
		}
	}
	p.form = form
	return text, ok
}

// nones returns the number of words for none in a prompt.
func nones(prompt string) int {
	return strings.Count(prompt, "None") + strings.Count(prompt, "null")
}

// turns returns a conversation of roles and contents.
func turns(of ...string) (all []*chatv1.Message) {
	for pair := range slices.Chunk(of, 2) {
		all = append(all, &chatv1.Message{Role: pair[0], Content: pair[1]})
	}
	return all
}

// try renders a conversation, with tools if offers is set. ok is false for a refusal.
func (p *prober) try(in Input) (text string, ok bool) {
	if in.Messages = identified(in.Messages, p.ids); p.offers {
		in.Tools = writtenTools
	}
	text, err := p.execute(in, p.offered, p.form)
	return text, err == nil
}

// shows reports whether the template writes all contents of some conversations.
func (p *prober) shows(conversations ...[]*chatv1.Message) bool {
	return !slices.ContainsFunc(conversations, func(messages []*chatv1.Message) bool {
		var contents []string
		for _, m := range messages {
			contents = append(contents, m.GetContent())
		}
		return !p.writes(messages, contents...)
	})
}

// writes reports whether the prompt of a conversation contains all of some texts.
func (p *prober) writes(messages []*chatv1.Message, texts ...string) bool {
	prompt, ok := p.try(Input{Messages: messages, AddGenerationPrompt: true})
	return ok && (p.blind || containsAll(prompt, texts))
}

func containsAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

// places returns where the template writes system texts of a role. Every turn of a probe must be
// written, because some templates replace one turn by another.
func (p *prober) places(role string) Places {
	return Places{
		First: p.shows(turns(role, probeA, roleUser, probeB)),
		Leading: p.shows(
			turns(role, probeA, role, probeB, roleUser, probeC),
			turns(roleSystem, probeA, role, probeB, roleUser, probeC)),
		Later: p.shows(
			turns(roleUser, probeA, role, probeB),
			turns(roleUser, probeA, role, probeB, roleUser, probeC),
			turns(roleUser, probeA, roleAssistant, probeB, role, probeC, roleUser, probeD),
			turns(roleSystem, probeA, roleUser, probeB, roleAssistant, probeC, role, probeD, roleUser, probeE)),
	}
}

// knowsDeveloper reports whether the template treats the role "developer" differently from a role
// that nobody knows. Any other template would write a header that its model has never seen.
func (p *prober) knowsDeveloper() bool {
	const unknown = "Xqrole"
	for _, before := range [][]*chatv1.Message{nil, turns(roleUser, probeC)} {
		of := func(role string) string {
			text, _ := p.try(Input{Messages: append(slices.Clone(before), turns(role, probeA, roleUser, probeB)...)})
			return text
		}
		if text := of(roleDeveloper); (p.blind || strings.Contains(text, probeA)) && strings.ReplaceAll(text, roleDeveloper, unknown) != strings.ReplaceAll(of(unknown), roleDeveloper, unknown) {
			return true
		}
	}
	return false
}

// tools finds whether the template describes tools that are offered, and how.
func (p *prober) tools(written *Samples) (shown bool) {
	for _, messages := range [][]*chatv1.Message{turns(roleUser, probeA), turns(roleSystem, probeB, roleUser, probeA)} {
		without, _ := p.try(Input{Messages: messages})
		with := *p
		with.offers = true
		text, ok := with.try(Input{Messages: messages})
		if written.Tools = between(without, text); ok && p.blind || containsAll(written.Tools, []string{"get_weather", "search"}) {
			with.offered, _ = readTools([]*chatv1.Tool{{Name: "get_weather"}}, false) // is valid
			bare, ok := with.try(Input{Messages: messages})
			p.form.WholeTools = !ok || !p.blind && !strings.Contains(bare, "get_weather") || nones(bare) > nones(text)
			return true
		}
	}
	written.Tools = ""
	return false
}

// conversationWithCalls returns a conversation with n calls of one turn, and the texts that a template
// that shows the conversation writes.
func conversationWithCalls(n int) (messages []*chatv1.Message, texts []string) {
	messages = append(turns(roleUser, probeA), &chatv1.Message{Role: roleAssistant, ToolCalls: writtenCalls[:n]})
	for i, call := range writtenCalls[:n] {
		messages = append(messages, &chatv1.Message{Role: roleTool, ToolCallId: call.GetId(), Content: []string{probeD, probeE}[i]})
		texts = append(texts, []string{"Paris", probeC}[i], messages[len(messages)-1].GetContent())
	}
	return messages, texts
}

// conversationWithTexts returns a conversation with two turns that have a text and a call each, and
// the texts that a template that shows the conversation writes.
func conversationWithTexts(reasoning string, later ...*chatv1.Message) (messages []*chatv1.Message, texts []string) {
	messages = turns(roleUser, probeA)
	for i, call := range writtenCalls {
		text, result := []string{probeB, probeF}[i], []string{probeD, probeE}[i]
		messages = append(messages, &chatv1.Message{Role: roleAssistant, Content: text, Reasoning: reasoning, ToolCalls: []*chatv1.ToolCall{call}},
			&chatv1.Message{Role: roleTool, ToolCallId: call.GetId(), Content: result})
		texts = append(texts, text, result)
	}
	return append(messages, later...), append(texts, "Paris", probeC)
}

// calls finds how the template takes turns with calls and their results.
func (p *prober) calls(found *Traits) {
	found.Calls, found.CallsAlone = p.callForm()
	p.offers = found.Calls
	if found.Calls || found.CallsAlone {
		p.ids = p.idForm()
	}
	found.Written.Reasoning = p.reasoning()
	if found.Calls || found.CallsAlone {
		found.Text = p.texts("", Kept, Before, BeforeUser, InReasoning)
		if found.ReasonedText = found.Text; p.form.Reasoning != "" {
			found.ReasonedText = p.texts(ReasoningText, Kept, InReasoning, Before, BeforeUser)
		}
		for role, places := range map[string]*Places{roleSystem: &found.System, roleDeveloper: &found.Developer} {
			one, texts := conversationWithCalls(1)
			places.OnlyAtUser = places.First && !p.writes(append(turns(role, probeB), one...), append(texts, probeB)...)
		}
		two, texts := conversationWithCalls(2)
		found.OneCall = !p.writes(two, texts...) && p.writes(arranged(two, Texts{}, Texts{}, true), texts...)
		found.Written.Call, found.Written.Calls = p.writtenCalls(1), p.writtenCalls(2)
	}
	p.offers = false
}

// texts finds the first of some places at which the template writes texts beside calls.
func (p *prober) texts(reasoning string, places ...Place) Texts {
	first := func(later ...*chatv1.Message) Place {
		messages, texts := conversationWithTexts(reasoning, later...)
		at := slices.IndexFunc(places, func(place Place) bool {
			way := Texts{place, place}
			return p.writes(arranged(messages, way, way, false), texts...)
		})
		return places[max(at, 0)]
	}
	return Texts{Latest: first(), Earlier: first(turns(roleAssistant, probeG, roleUser, probeH)...)}
}

// callForm finds the form in which the template takes calls and their results. A form in which it
// writes arguments as Python prints them is the last choice.
func (p *prober) callForm() (offered, alone bool) {
	messages, texts := conversationWithCalls(1)
	empty := p.form
	for _, printed := range []bool{false, true} {
		for _, form := range callForms {
			writes := func(offers bool) bool {
				with := *p
				with.offers, with.form.TextArguments, with.form.NoContent = offers, form.TextArguments, form.NoContent
				text, ok := with.try(Input{Messages: messages, AddGenerationPrompt: true})
				return ok && (p.blind || containsAll(text, texts) && strings.Contains(text, "{'city': 'Paris'") == printed)
			}
			if offered, alone = writes(true), writes(false); offered || alone {
				p.form.TextArguments, p.form.NoContent = form.TextArguments, form.NoContent
				return offered, alone
			}
		}
	}
	p.form = empty
	return false, false
}

// callForms are the forms of calls; most templates take the first.
var callForms = []Form{{}, {TextArguments: true}, {NoContent: true}, {TextArguments: true, NoContent: true}}

// idForm finds the form in which the template takes ids.
func (p *prober) idForm() IDs {
	messages, texts := conversationWithCalls(1)
	long := replace(messages, func(m *chatv1.Message) *chatv1.Message {
		c := withCalls(m, func(call *chatv1.ToolCall) { call.Id = "call_" + call.GetId() })
		if m.GetRole() == roleTool {
			c.ToolCallId = "call_" + c.GetToolCallId()
		}
		return c
	})
	if p.writes(messages, texts...) && !p.writes(long, texts...) {
		return NineIDs
	}
	if text := p.after(messages); strings.Contains(text, writtenCalls[0].GetId()) && !strings.Contains(text, writtenCalls[0].GetName()) {
		return NamedIDs
	}
	return AnyIDs
}

// isUnusable reports whether a template could not use a value.
func isUnusable(err error) bool {
	_, unusable := errors.AsType[*jinja.ValueError](err)
	return unusable
}

// imageRoles returns the roles in whose turns the template writes the placeholder of an image, which
// it writes in a turn of the user.
func (p *prober) imageRoles() []string {
	// shown returns the prompt of a conversation whose turn with the text probeD has an image.
	shown := func(messages []*chatv1.Message) string {
		at := slices.IndexFunc(messages, func(m *chatv1.Message) bool { return m.GetContent() == probeD })
		messages[at].Images = []*chatv1.PlacedImage{{Image: &llmv1.Image{}}}
		text, _ := p.try(Input{Messages: messages, AddGenerationPrompt: true}) // "" shows nothing
		return text
	}
	without, _ := p.try(Input{Messages: turns(roleUser, probeD), AddGenerationPrompt: true})
	placeholder := inserted(without, shown(turns(roleUser, probeD)))
	if placeholder == "" || isLiteral(placeholder) {
		return nil
	}
	called, _ := conversationWithCalls(1)
	roles := []string{roleUser}
	for role, messages := range map[string][]*chatv1.Message{
		roleTool: called, roleAssistant: turns(roleUser, probeA, roleAssistant, probeD, roleUser, probeB),
	} {
		if text := shown(messages); strings.Contains(text, placeholder) && strings.Contains(text, probeD) {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return roles
}

// isLiteral reports whether a template has written a list of parts of a content as a value.
func isLiteral(text string) bool {
	return strings.Contains(text, "'type'") || strings.Contains(text, `"type"`)
}

// inserted returns the text that with has before probeD and without has not.
func inserted(without, with string) string {
	before, _, _ := strings.Cut(without, probeD)
	after, _, shown := strings.Cut(with, probeD)
	if !shown {
		return ""
	}
	return strings.TrimSuffix(after[len(common(before, after)):], before[len(common(before, after)):])
}
