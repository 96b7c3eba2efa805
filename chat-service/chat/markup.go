package chat

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"

	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/chat-service/reasoning"
	"github.com/whence-dev/whence/chat-service/toolcall"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// Markup describes how a model writes reasoning and tool calls. The zero value is for a model that
// writes only text.
type Markup struct {
	Calls     *toolcall.Format // nil if the model calls no tools
	Reasoning *reasoning.Form  // how the model marks reasoning, unless Calls says it
	// Counts means that the tags of reasoning are tokens, so that the tokens between them can be
	// counted.
	Counts bool

	lacks   string   // why the model calls no tools, if Calls is nil; "" if an operator says so
	special []uint32 // tokens that decoding would omit but the parser of Calls needs
	hidden  []string // the texts of special
	tags    []uint32 // special tokens of the tags of reasoning
	sample  string   // a call as the chat template writes it
	layout  *layout  // of the calls in sample; nil if their arguments are a JSON object
}

// markupOf detects the markup of a model from its chat template.
func markupOf(t *prompt.Template, tok *tokenizer.Tokenizer) Markup {
	w := Markup{Reasoning: reasoningOf(t, tok)}
	_, opens := tok.TokenID(w.Reasoning.Open)
	_, closes := tok.TokenID(w.Reasoning.Close)
	w.Counts = opens && closes
	for _, f := range w.Reasoning.Variants() {
		for _, tag := range slices.Concat([]string{f.Open, f.Close}, f.Before, f.After) {
			for _, id := range tok.Encode(tag, false) {
				if tok.IsSpecial(id) && !slices.Contains(w.tags, id) {
					w.tags = append(w.tags, id)
				}
			}
		}
	}
	w.sample = t.Traits().Written.Call
	if at := strings.LastIndex(w.sample, w.Reasoning.Close); at >= 0 {
		w.sample = w.sample[at+len(w.Reasoning.Close):] // the template writes empty reasoning before it
	}
	format, lacks := formatOf(t)
	w.lacks = lacks
	w.use(format, tok)
	return w
}

// formatOf returns the format in which a model writes calls, or nil and the reason why it calls no
// tools.
func formatOf(t *prompt.Template) (format *toolcall.Format, lacks string) {
	traits := t.Traits()
	written := traits.Written
	format = toolcall.Detect(written.Call, written.Calls, written.Tools, t.Source())
	switch {
	case format == nil && traits.ChatML && !traits.Tools:
		return toolcall.Hermes, "" // package prompt describes tools to such a model in this format
	case format == nil && written.Call != "":
		return nil, fmt.Sprintf("its chat template writes tool calls in an unknown form: %.200q", written.Call)
	case format == nil:
		return nil, "the format of its tool calls is unknown"
	case format.Lacks != "":
		return nil, fmt.Sprintf("its tool calls have the format %s, which has no parser: %s", format.Name, format.Lacks)
	}
	return format, ""
}

// prompts are the variables with which a short conversation shows how a template marks reasoning.
var prompts = []string{"", `{"enable_thinking":true,"thinking":true,"reasoning":true}`, `{"enable_thinking":false,"thinking":false}`}

// reasoningOf returns the form in which a model marks its reasoning.
func reasoningOf(t *prompt.Template, tok *tokenizer.Tokenizer) *reasoning.Form {
	e := reasoning.Evidence{
		Turn: t.Traits().Written.Reasoning, Thought: prompt.ReasoningText, Source: t.Source(),
		HasToken: func(text string) bool { _, ok := tok.TokenID(text); return ok },
	}
	for _, variables := range prompts {
		text, err := t.Render(context.Background(), prompt.Input{
			Messages: []*chatv1.Message{{Role: "user", Content: "Hi"}}, AddGenerationPrompt: true, Variables: variables,
		})
		if err == nil {
			e.Prompts = append(e.Prompts, text)
		}
	}
	return reasoning.Detect(e)
}

// thinks returns the form in which the model marks reasoning apart from its calls, or nil.
func (w *Markup) thinks() *reasoning.Form {
	if w.Calls != nil && w.Calls.Thinks {
		return nil
	}
	return w.Reasoning
}

// reasoning returns how to separate reasoning of a form in an answer.
func (w *Markup) reasoning(form *reasoning.Form, tok *tokenizer.Tokenizer, opened bool) reasoning.Options {
	o := reasoning.Options{Opened: opened}
	for _, id := range w.tags {
		text := tok.Decode([]uint32{id}, false)
		o.Special = o.Special || strings.Contains(form.Open+form.Close, text)
		if !slices.Contains(w.hidden, text) {
			o.Hidden = append(o.Hidden, text)
		}
	}
	return o
}

// aroundArguments returns the text around the JSON arguments of an earlier call that the chat template
// does not write: in the form of the model if the template writes no calls, and in the Hermes format
// if it refuses this one.
func (w *Markup) aroundArguments(tool string) (before, after string) {
	if w.Calls != nil && w.sample == "" {
		if before, after = w.Calls.Around(tool); !strings.HasSuffix(before, "(") { // arguments of Python
			return before, after
		}
	}
	return toolcall.Hermes.Around(tool)
}

func (w *Markup) use(f *toolcall.Format, tok *tokenizer.Tokenizer) {
	w.Calls, w.special, w.hidden, w.layout = f, nil, nil, nil
	if f == nil {
		return
	}
	if l, ok := layoutOf(w.sample); ok && !f.Thinks && l.isRead(f) {
		w.layout = &l
	}
	for _, marker := range f.Markers {
		for _, id := range tok.Encode(marker, false) { // a marker may be a special token, or contain one
			if tok.IsSpecial(id) && !slices.Contains(w.special, id) {
				w.special, w.hidden = append(w.special, id), append(w.hidden, tok.Decode([]uint32{id}, false))
			}
		}
	}
}

// ToolFormatAuto is the name for the format that the chat template uses.
const ToolFormatAuto = "auto"

// UseToolFormat sets the format of tool calls by name. With "none" the model calls no tools.
func (m *Model) UseToolFormat(name string) error {
	switch name {
	case "", ToolFormatAuto:
		return nil
	case "none":
		m.Markup.lacks = ""
		m.Markup.use(nil, m.Tokenizer)
		return nil
	}
	f, err := toolcall.Named(name)
	if err != nil {
		return fmt.Errorf("%w, %s and none", err, ToolFormatAuto)
	}
	m.Markup.use(f, m.Tokenizer)
	return nil
}

// Template describes the chat template, and how answers are read.
func (m *Model) Template() *chatv1.ChatTemplate {
	t := m.Traits.Describe()
	calls, form := m.Markup.Calls, m.Markup.thinks()
	if calls != nil {
		t.ToolFormat = calls.Name
	} else {
		t.ToolProblem = cmp.Or(m.Markup.lacks, formatIsNone)
	}
	if form != nil {
		t.ReasoningTags = []string{form.Open, form.Close}
	} else if calls != nil {
		t.ReasoningTags = []string{calls.Thought.Open, calls.Thought.Close}
	}
	return t
}

// formatIsNone says why a model calls no tools if an operator has turned tools off.
const formatIsNone = "--tool-format is none"

// An Offer is the part of a request that lists the tools that the model may call.
type Offer interface {
	GetTools() []*chatv1.Tool
	GetToolChoice() *chatv1.ToolChoice
}

// Offered returns the tools to describe in the prompt of a request.
func (m *Model) Offered(req Offer) ([]*chatv1.Tool, error) {
	mode := req.GetToolChoice().GetMode()
	switch {
	case mode == chatv1.ToolMode_TOOL_MODE_REQUIRED && len(req.GetTools()) == 0:
		return nil, streamerr.InvalidParam("tool_choice", "tool_choice requires a tool call, but the request has no tools")
	case mode == chatv1.ToolMode_TOOL_MODE_NONE || len(req.GetTools()) == 0:
		return nil, nil
	case m.Markup.Calls == nil:
		return nil, streamerr.InvalidParam("tools", "%s cannot call tools: %s; set the format with --tool-format of chat-service", m.Name, cmp.Or(m.Markup.lacks, formatIsNone)).
			WithCode(streamerr.CodeUnsupportedField)
	}
	return req.GetTools(), nil
}

// separates reports whether reasoning must be separated from the answer.
func separates(req *chatv1.ChatRequest) bool {
	return req.SeparateReasoning == nil || req.GetSeparateReasoning()
}
