package chat

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/reasoning"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// anyArguments is the schema of a tool that gives none.
const anyArguments = `{"type":"object"}`

// guide returns the request with a guide for the forms that its answer may have: a call where one is required, and where the answer
// has to have a form of its own, a call of the tools that are there as well.
func (m *Model) guide(r rendered) (*chatv1.ChatRequest, error) {
	asked := r.req.GetSampling().GetGuide()
	required := r.req.GetToolChoice().GetMode() == chatv1.ToolMode_TOOL_MODE_REQUIRED
	if required && asked != nil {
		return nil, streamerr.InvalidParam("tool_choice", "tool_choice asks for a call, but the guide for something else")
	}
	if asked == nil && !required {
		return r.req, nil
	}
	g := &streamv1.Guide{}
	if asked != nil {
		g = proto.CloneOf(asked)
	}
	calls, err := m.calls(r, required)
	if err != nil {
		return nil, err
	}
	g.Forms = append(g.Forms, calls...)
	if r.opened { // whoever is guided does not think
		for _, form := range g.Forms {
			form.Before = reasoning.Close + "\n\n" + form.GetBefore()
		}
	}
	req := proto.CloneOf(r.req)
	if req.Sampling == nil {
		req.Sampling = &streamv1.Sampling{}
	}
	req.Sampling.Guide = g
	return req, nil
}

// calls returns the forms of calls: of all tools, or of the one that is named.
func (m *Model) calls(r rendered, required bool) ([]*streamv1.GuideForm, error) {
	name := r.req.GetToolChoice().GetName()
	if required && name != "" && !slices.ContainsFunc(r.tools, func(t *chatv1.Tool) bool { return t.GetName() == name }) {
		return nil, streamerr.InvalidParam("tool_choice", "tool_choice names %.80q, which is none of the tools", name)
	}
	var forms []*streamv1.GuideForm
	for _, tool := range r.tools {
		if required && name != "" && tool.GetName() != name {
			continue
		}
		before, after, ok := m.Written.Calls.Around(tool.GetName())
		if !ok {
			if required {
				return nil, streamerr.InvalidParam("tool_choice", "calls in the form of this model (%s) cannot be required", m.Written.Calls.Name)
			}
			return nil, nil
		}
		schema := tool.GetParameters()
		if schema == "" {
			schema = anyArguments
		}
		forms = append(forms, &streamv1.GuideForm{Before: before, Schema: schema, After: after})
	}
	return forms, nil
}
