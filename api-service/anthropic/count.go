package anthropic

import (
	"slices"

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
	Param  func(inner string) string
	Images []image.Source // of Request
}

// CheckImages refuses images that would have to be counted. For a model that takes no images, notes
// take the place of those that an answer does not need, as in the prompt.
func (c *Count) CheckImages(takes bool) error {
	messages := c.Request.GetMessages()
	if !takes {
		image.MarkSpare(messages, c.Images)
		image.NoteOmitted(messages, c.Images, takes)
	}
	for _, m := range messages {
		for _, placed := range m.GetImages() {
			return image.Uncounted(c.Images[slices.IndexFunc(c.Images, func(s image.Source) bool { return s.To == placed.GetImage() })])
		}
	}
	return nil
}

// ParseCount parses a body of POST /v1/messages/count_tokens, like Parse.
func ParseCount(body []byte, in *strict.Reading) (*Count, error) {
	m := newMessage(in)
	if err := m.parse(body, &counted); err != nil {
		return nil, err
	}
	r := m.request
	return &Count{Param: m.param, Images: m.images, Request: &chatv1.TokenizeRequest{
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
