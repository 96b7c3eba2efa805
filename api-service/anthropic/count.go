package anthropic

import (
	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// A Count is a body of POST /v1/messages/count_tokens.
type Count struct {
	// Request asks for the tokens of the prompt that POST /v1/messages would make from the same
	// fields.
	Request *chatv1.TokenizeRequest
	// Param converts the name of a field in the IDL, which an inner hop uses in its errors, to its
	// name in the body.
	Param func(inner string) string
}

// ParseCount parses a body of POST /v1/messages/count_tokens, like Parse.
func ParseCount(body []byte, in *strict.Reading) (*Count, error) {
	m := newMessage(in)
	if err := m.parse(body, &counted); err != nil {
		return nil, err
	}
	if len(m.images) > 0 {
		return nil, image.Uncounted(m.images[0])
	}
	r := m.request
	return &Count{Param: m.param, Request: &chatv1.TokenizeRequest{
		Model: r.GetModel(), Messages: r.GetMessages(), AddGenerationPrompt: !r.GetContinueMessage(), ContinueMessage: r.GetContinueMessage(),
		Tools: r.GetTools(), ToolChoice: r.GetToolChoice(), TemplateVariables: r.GetTemplateVariables(),
	}}, nil
}

// Counted returns the answer.
func Counted(resp *chatv1.TokenizeResponse) []byte {
	return marshal(struct {
		Input int `json:"input_tokens"`
	}{len(resp.GetIds())})
}
