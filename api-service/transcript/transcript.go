// Package transcript collects the messages of a request for APIs whose bodies have several items per turn: chat
// templates expect one message per turn.
package transcript

import (
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// Paragraph separates texts that are merged into one turn.
const Paragraph = "\n\n"

// An Origin is the field that a message of the request comes from, and the fields that the calls of
// the message come from.
type Origin struct {
	At    string
	Calls []string
}

// A Transcript has the turns of a body so far. The zero value is empty.
type Transcript struct {
	turns []*Turn
}

// A Turn becomes one message of the request.
type Turn struct {
	Origin
	Message            *chatv1.Message // without the texts
	Content, Reasoning Passage
}

// Begin begins a turn that comes from the field at.
func (s *Transcript) Begin(at, role string) *Turn {
	t := &Turn{Origin: Origin{At: at}, Message: &chatv1.Message{Role: role}}
	s.turns = append(s.turns, t)
	return t
}

// Last returns the last turn if it has the role, otherwise nil.
func (s *Transcript) Last(role string) *Turn {
	if n := len(s.turns); n > 0 && s.turns[n-1].Message.GetRole() == role {
		return s.turns[n-1]
	}
	return nil
}

// Continue returns the last turn if it has the role, otherwise it begins one.
func (s *Transcript) Continue(at, role string) *Turn {
	if t := s.Last(role); t != nil {
		return t
	}
	return s.Begin(at, role)
}

// Show appends an image to the content of the turn.
func (t *Turn) Show(image *llmv1.Image) {
	t.Message.Images = append(t.Message.Images, &chatv1.PlacedImage{Image: image, Offset: uint32(t.Content.mark())}) //nolint:gosec // a body is smaller
}

// Messages returns the messages of the request, and the fields that they come from.
func (s *Transcript) Messages() (all []*chatv1.Message, origins []Origin) {
	for _, t := range s.turns {
		t.Message.Content, t.Message.Reasoning = t.Content.String(), t.Reasoning.String()
		all, origins = append(all, t.Message), append(origins, t.Origin)
	}
	return all, origins
}

// A Passage is a text of many pieces, which are joined in linear time.
type Passage struct {
	text  strings.Builder
	apart bool // a paragraph separates the next piece from the text
}

// Separate puts a paragraph between the text, if there is any, and the next piece.
func (p *Passage) Separate() { p.apart = p.text.Len() > 0 }

// Write appends a piece.
func (p *Passage) Write(piece string) {
	if piece == "" {
		return
	}
	p.mark()
	p.text.WriteString(piece)
}

// mark returns the length of the text in bytes, including the separator of the next piece.
func (p *Passage) mark() int {
	if p.apart {
		p.text.WriteString(Paragraph)
		p.apart = false
	}
	return p.text.Len()
}

// String returns the text.
func (p *Passage) String() string { return p.text.String() }
