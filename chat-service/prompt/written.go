package prompt

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// Written has the text that a template writes for each of some parts of a conversation, or "" for a
// part that the template does not write. Templates write earlier answers in the form in which their
// models answer.
type Written struct {
	// Call is an assistant's turn that calls get_weather with {"city": "Paris", "days": 2, "deep": true}.
	Call string
	// Calls is an assistant's turn with the same call and a call of search with {"query": "Xqgamma"}.
	Calls string
	// Tools is the description of these two tools.
	Tools string
	// Reasoning is an assistant's turn whose reasoning is ReasoningText. Its content is AnswerText. If
	// the template writes no reasoning there, the turn has the call instead of a content.
	Reasoning string
}

// The texts in Written.Reasoning.
const (
	ReasoningText = "Xqzeta"
	AnswerText    = probeB
)

// The calls and the tools of Written.
var (
	writtenCalls = []*chatv1.ToolCall{
		{Id: "callabc12", Name: "get_weather", Arguments: `{"city": "Paris", "days": 2, "deep": true}`},
		{Id: "callabc34", Name: "search", Arguments: `{"query": "` + probeC + `"}`},
	}
	writtenTools = []*chatv1.Tool{
		{Name: "get_weather", Description: "Tells the weather.", Parameters: `{"type": "object", "properties": {"city": {"type": "string", "description": "A city."}, ` +
			`"days": {"type": "integer"}, "deep": {"type": "boolean"}}, "required": ["city"]}`},
		{Name: "search", Description: "Finds pages.", Parameters: `{"type": "object", "properties": {"query": {"type": "string", "description": "Some words."}}, "required": ["query"]}`},
	}
)

// reasoningFields are the fields of an assistant's turn in which templates expect its reasoning.
var reasoningFields = []string{defaultReasoningField, "reasoning", "thinking", reasoningPart}

const (
	defaultReasoningField = "reasoning_content"
	// reasoningPart means that reasoning is a part of the content, of the type "thinking".
	reasoningPart = "content"
)

// A prober renders small conversations, which begin with a turn of the user.
type prober struct {
	execute func(in Input, tools jinja.Value, form Form) (string, error)
	form    Form
	tools   jinja.Value
}

// render returns what the template writes after the first turn of the user, and "" for a refusal.
func (p prober) render(messages ...*chatv1.Message) string {
	all := append(turns(roleUser, probeA), messages...)
	text, err := p.execute(Input{Messages: all}, p.tools, p.form)
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(text, probeA)
	return after
}

// writtenBy returns the texts of Written in a form of turns, and the name of the field for reasoning.
func (t *Template) writtenBy(ctx context.Context, form Form) (w Written, field string) {
	p := prober{form: form, tools: jinja.None(), execute: func(in Input, tools jinja.Value, form Form) (string, error) {
		return t.execute(ctx, in, tools, form)
	}}
	without, _ := t.execute(ctx, Input{Messages: turns(roleUser, probeA)}, p.tools, form)
	for _, offered := range []bool{true, false} {
		p.tools = jinja.None()
		if offered {
			p.tools, _ = readTools(writtenTools) // are valid
			with, _ := t.execute(ctx, Input{Messages: turns(roleUser, probeA)}, p.tools, form)
			if w.Tools = between(without, with); !strings.Contains(w.Tools, "get_weather") {
				w.Tools = ""
			}
		}
		if w.Call = p.calls(writtenCalls[:1]); w.Call != "" {
			w.Calls = p.calls(writtenCalls)
			break
		}
	}
	for _, field := range reasoningFields {
		p.form.Reasoning = field
		if w.Reasoning = p.reasoning(); w.Reasoning != "" {
			return w, field
		}
	}
	return w, ""
}

// calls returns the text of an assistant's turn with calls.
func (p prober) calls(of []*chatv1.ToolCall) string {
	turn := &chatv1.Message{Role: roleAssistant, ToolCalls: of}
	conversation := []*chatv1.Message{turn}
	for i, call := range of {
		conversation = append(conversation, &chatv1.Message{Role: roleTool, ToolCallId: call.GetId(), Content: []string{probeD, probeE}[i]})
	}
	shows := func(text string) bool {
		return strings.Contains(text, "get_weather") && strings.Contains(text, "Paris") && (len(of) == 1 || strings.Contains(text, probeC))
	}
	text, _, answered := strings.Cut(p.render(conversation...), probeD)
	if !answered || !shows(text) {
		return ""
	}
	head := p.head(text, turns(roleAssistant, probeB), turns(roleAssistant, probeB, roleUser, probeC))
	if alone := common(text, p.render(turn)); shows(alone) {
		text = alone // ends before the turn of the tool
	} else {
		_, end, _ := strings.Cut(p.render(turns(roleAssistant, probeB, roleTool, probeD)...), probeB)
		end, _, _ = strings.Cut(end, probeD)
		text = strings.TrimSuffix(text, end)
	}
	return text[min(len(head), len(text)):]
}

// head returns the beginning of a text that is also the beginning of all of some conversations.
func (p prober) head(text string, of ...[]*chatv1.Message) string {
	head := text
	for _, conversation := range of {
		if other := p.render(conversation...); other != "" {
			head = common(head, other)
		}
	}
	return head
}

// reasoning returns the text of an assistant's turn with reasoning.
func (p prober) reasoning() string {
	call := &chatv1.Message{Role: roleAssistant, ToolCalls: writtenCalls[:1]}
	result := &chatv1.Message{Role: roleTool, ToolCallId: writtenCalls[0].GetId(), Content: probeD}
	answer, next := turns(roleAssistant, AnswerText)[0], turns(roleUser, probeC)[0]
	for _, conversation := range [][]*chatv1.Message{{answer}, {answer, next}, {call, result}} {
		conversation[0] = copyOf(conversation[0])
		conversation[0].Reasoning = ReasoningText
		text := p.render(conversation...)
		literal := strings.Contains(text, `'thinking'`) || strings.Contains(text, `"thinking"`) // it writes the list as it is
		if literal || !strings.Contains(text, ReasoningText) {
			continue
		}
		for _, end := range []string{probeC, probeD} {
			text, _, _ = strings.Cut(text, end) // ends before the next turn
		}
		// Turns with and without reasoning begin alike. Some templates write the tags of reasoning in
		// turns without any, so the shortest beginning counts.
		head := p.head(text, []*chatv1.Message{answer}, []*chatv1.Message{answer, next}, []*chatv1.Message{call, result})
		if rest := text[len(head):]; !strings.HasPrefix(strings.TrimSpace(rest), ReasoningText) {
			return rest
		}
		return text
	}
	return ""
}

// between returns the text that with has and without has not.
func between(without, with string) string {
	text := with[len(common(without, with)):]
	tail := 0
	for tail < min(len(without), len(text)) && without[len(without)-1-tail] == text[len(text)-1-tail] {
		tail++
	}
	for tail > 0 && !utf8.RuneStart(text[len(text)-tail]) {
		tail--
	}
	return text[:len(text)-tail]
}

// common returns the longest common beginning of two texts. It does not end within a character or
// a tag.
func common(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) {
		n--
	}
	if tag := strings.LastIndexAny(a[:n], "<["); tag >= 0 && n < len(a) && !strings.ContainsAny(a[tag:n], ">] \n") {
		n = tag
	}
	return a[:n]
}
