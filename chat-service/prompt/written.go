package prompt

import (
	"slices"
	"strings"
	"unicode/utf8"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// Samples has the text that a template writes for each of some parts of a conversation, or "" for a
// part that the template does not write. Templates write earlier answers in the form in which their
// models answer.
type Samples struct {
	// Call is a call of get_weather with {"city": "Paris", "days": 2, "deep": true}.
	Call string `json:",omitzero"`
	// Calls are the same call and a call of search with {"query": "Xqgamma"} in one turn.
	Calls string `json:",omitzero"`
	// Tools is the description of these two tools.
	Tools string `json:"-"`
	// Reasoning is an assistant's turn whose reasoning is ReasoningText. Its content is AnswerText. If
	// the template writes no reasoning there, the turn has the call instead of a content.
	Reasoning string `json:",omitzero"`
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
			`"days": {"type": "integer", "description": "How many."}, "deep": {"type": "boolean", "description": "With details."}}, "required": ["city"]}`},
		{Name: "search", Description: "Finds pages.", Parameters: `{"type": "object", "properties": {"query": {"type": "string", "description": "Some words."}}, "required": ["query"]}`},
	}
)

// example returns a call with placeholders.
func (w *Samples) example() string {
	return strings.NewReplacer(writtenCalls[0].GetArguments(), "{…}", writtenCalls[0].GetName(), "…").Replace(w.Call)
}

// reasoningFields are the fields of an assistant's turn in which templates expect its reasoning.
var reasoningFields = []string{defaultReasoningField, "reasoning", "thinking", "tool_plan", reasoningPart}

const (
	defaultReasoningField = "reasoning_content"
	// reasoningPart means that reasoning is a part of the content, of the type "thinking".
	reasoningPart = "content"
)

// thinkingOn are variables that turn thinking on. A template may write no reasoning without them.
const thinkingOn = `{"enable_thinking":true,"thinking":true}`

// after returns what the template writes after the first turn of the user, and "" for a refusal.
func (p *prober) after(messages []*chatv1.Message) string {
	text, _ := p.try(Input{Messages: messages, Variables: thinkingOn})
	_, after, _ := strings.Cut(text, probeA)
	return after
}

// writtenCalls returns the text of an assistant's turn with n calls.
func (p *prober) writtenCalls(n int) string {
	messages, texts := conversationWithCalls(n)
	shows := func(text string) bool {
		return containsAll(text, append([]string{"get_weather", "Paris"}, texts[2*n-2]))
	}
	text, _, answered := strings.Cut(p.after(messages), probeD)
	if !answered || !shows(text) {
		return ""
	}
	head := p.head(text, turns(roleUser, probeA, roleAssistant, probeB), turns(roleUser, probeA, roleAssistant, probeB, roleUser, probeC))
	if alone := common(text, p.after(messages[:2])); shows(alone) {
		text = alone // ends before the turn of the tool
	}
	for _, next := range [][]*chatv1.Message{turns(roleUser, probeD), turns(roleTool, probeD), nil} { // does not end as other turns do
		_, end, _ := strings.Cut(p.after(append(turns(roleUser, probeA, roleAssistant, probeB), next...)), probeB)
		end, _, _ = strings.Cut(end, probeD)
		text = strings.TrimSuffix(text, end)
	}
	return text[min(len(head), len(text)):]
}

// head returns the beginning of a text that is also the beginning of all of some conversations.
func (p *prober) head(text string, of ...[]*chatv1.Message) string {
	head := text
	for _, conversation := range of {
		if other := p.after(conversation); other != "" {
			head = common(head, other)
		}
	}
	return head
}

// reasoning finds the field in which the template takes reasoning, and returns the text of an
// assistant's turn with reasoning.
func (p *prober) reasoning() string {
	called, _ := conversationWithCalls(1)
	all := [][]*chatv1.Message{turns(roleUser, probeA, roleAssistant, AnswerText), turns(roleUser, probeA, roleAssistant, AnswerText, roleUser, probeC), called}
	for _, p.form.Reasoning = range reasoningFields {
		for _, without := range all {
			with := slices.Clone(without)
			with[1] = copyOf(with[1])
			with[1].Reasoning = ReasoningText
			text := p.after(with)
			if isLiteral(text) || !strings.Contains(text, ReasoningText) {
				continue
			}
			for _, end := range []string{probeC, probeD} {
				text, _, _ = strings.Cut(text, end) // ends before the next turn
			}
			// Turns with and without reasoning begin alike. Some templates write the tags of reasoning in
			// turns without any, so the shortest beginning counts.
			if rest := text[len(p.head(text, all...)):]; !strings.HasPrefix(strings.TrimSpace(rest), ReasoningText) {
				return rest
			}
			return text
		}
	}
	p.form.Reasoning = ""
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
