package chat

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/chat-service/reasoning"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxParts bounds the parts of all forms of a guide together, as engines do.
const maxParts = 1000

// anyArguments is the schema for a tool without a schema.
const anyArguments = `{"type":"object"}`

// guide returns the request's sampling with a guide for the allowed forms of the answer: a tool
// call if the request requires one, because a requested form is for text; otherwise the requested
// form, or also a tool call if the request has tools. Reasoning may precede the form, if the prompt,
// which ends with text, allows for it.
func (m *Model) guide(p *tokenPrompt, text string) (*llmv1.Sampling, error) {
	asked := p.req.GetSampling().GetGuide()
	required := p.req.GetToolChoice().GetMode() == chatv1.ToolMode_TOOL_MODE_REQUIRED
	if asked == nil && !required {
		return p.req.GetSampling(), nil
	}
	sampling := &llmv1.Sampling{}
	if s := p.req.GetSampling(); s != nil {
		sampling = proto.CloneOf(s)
	}
	if sampling.Guide == nil || required {
		sampling.Guide = &llmv1.Guide{}
	}
	guide := sampling.Guide
	if f := m.Markup.Calls; f != nil {
		for _, form := range guide.Forms {
			form.Before = f.Answer + form.GetBefore()
		}
	}
	calls, err := m.calls(p, required)
	if err != nil {
		return nil, err
	}
	guide.Forms = append(guide.Forms, calls...)
	if guide.GetFreeUntil() == "" {
		p.reasonBefore(guide, text)
	}
	return sampling, nil
}

// reasonBefore lets the model reason before a form: as long as it likes if the prompt has opened the
// reasoning, and if it likes to at all if the prompt has not.
func (p *tokenPrompt) reasonBefore(guide *llmv1.Guide, prompt string) {
	form, calls := p.form, p.model.Markup.Calls
	switch {
	case form == nil && calls == nil:
	case form == nil:
		guide.FreeFrom, guide.FreeUntil, guide.FreeGap = calls.Thought.Open, calls.Thought.Close, calls.Thought.Gap
	case form.Opened(prompt):
		guide.FreeUntil = form.Close
		for _, f := range guide.Forms { // and not FreeGap, which older workers do not know
			f.Before = form.Gap + f.GetBefore()
		}
	case form != reasoning.Guess && !form.Closed(prompt):
		guide.FreeFrom, guide.FreeUntil, guide.FreeGap = form.Open, form.Close, form.Gap
	}
}

// calls returns the forms of tool calls: one for each tool, or one for the tool that tool_choice
// names. A model whose calls are XML writes them so if their schema allows for it, and otherwise as
// JSON between its tags, which is read, too.
func (m *Model) calls(p *tokenPrompt, required bool) ([]*llmv1.GuideForm, error) {
	name := p.req.GetToolChoice().GetName()
	if required && name != "" && !slices.ContainsFunc(p.tools, func(t *chatv1.Tool) bool { return t.GetName() == name }) {
		return nil, streamerr.InvalidParam("tool_choice", "tool_choice names %.80q, but no tool has this name", name)
	}
	var forms []*llmv1.GuideForm
	parts := 0
	for _, tool := range p.tools {
		if required && name != "" && tool.GetName() != name {
			continue
		}
		schema := prompt.Clean(tool.GetParameters())
		if schema == "" {
			schema = anyArguments
		}
		if l := m.Markup.layout; l != nil {
			if form, ok := l.form(tool.GetName(), schema); ok && parts+len(form.GetParts()) <= maxParts {
				parts += len(form.GetParts())
				forms = append(forms, form)
				continue
			}
		}
		before, after := m.Markup.Calls.Around(tool.GetName())
		forms = append(forms, &llmv1.GuideForm{Before: before, Schema: schema, After: after})
	}
	return forms, nil
}
