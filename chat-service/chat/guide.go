package chat

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// anyArguments is the schema for a tool without a schema.
const anyArguments = `{"type":"object"}`

// guide returns the request's sampling with a guide for the allowed forms of the answer: a tool
// call if the request requires one, because a requested form is for text; otherwise the requested
// form, or also a tool call if the request has tools. Reasoning may precede the form, and so may the
// calls of a format that marks the answer.
func (m *Model) guide(p *tokenPrompt) (*llmv1.Sampling, error) {
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
	if !required && p.calls() && m.Markup.Calls.Answer != "" {
		if sampling.Guide.GetFreeUntil() == "" {
			sampling.Guide.FreeUntil = m.Markup.Calls.Answer
		}
		return sampling, nil
	}
	calls, err := m.calls(p, required)
	if err != nil {
		return nil, err
	}
	sampling.Guide.Forms = append(sampling.Guide.Forms, calls...)
	if p.opened && sampling.GetGuide().GetFreeUntil() == "" { // the model reasons first, and then answers in a form
		sampling.Guide.FreeUntil = m.Markup.Reasoning.Close
		for _, form := range sampling.Guide.Forms {
			form.Before = m.Markup.Reasoning.Gap + form.GetBefore()
		}
	}
	return sampling, nil
}

// calls returns the forms of tool calls: one for each tool, or one for the tool that tool_choice
// names.
func (m *Model) calls(p *tokenPrompt, required bool) ([]*llmv1.GuideForm, error) {
	name := p.req.GetToolChoice().GetName()
	if required && name != "" && !slices.ContainsFunc(p.tools, func(t *chatv1.Tool) bool { return t.GetName() == name }) {
		return nil, streamerr.InvalidParam("tool_choice", "tool_choice names %.80q, but no tool has this name", name)
	}
	var forms []*llmv1.GuideForm
	for _, tool := range p.tools {
		if required && name != "" && tool.GetName() != name {
			continue
		}
		before, after := m.Markup.Calls.Around(tool.GetName())
		schema := prompt.Clean(tool.GetParameters())
		if schema == "" {
			schema = anyArguments
		}
		forms = append(forms, &llmv1.GuideForm{Before: before, Schema: schema, After: after})
	}
	return forms, nil
}
