package anthropic

import (
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// A conversation collects the turns of a body's messages. Consecutive messages of one role become
// one turn, as in Anthropic's API, and a message without content becomes none.
type conversation struct {
	turns []*turn
}

// A turn becomes one message of the request.
type turn struct {
	from               string          // the field that it comes from
	message            *chatv1.Message // without the texts
	content, reasoning passage
}

// begin begins a turn that comes from a field.
func (c *conversation) begin(from, role string) *turn {
	t := &turn{from: from, message: &chatv1.Message{Role: role}}
	c.turns = append(c.turns, t)
	return t
}

// turn returns the last turn if it has the role, otherwise it begins one.
func (c *conversation) turn(from, role string) *turn {
	if n := len(c.turns); n > 0 && c.turns[n-1].message.GetRole() == role {
		return c.turns[n-1]
	}
	return c.begin(from, role)
}

// separate begins a message: a paragraph separates its texts from those of a message before it that
// becomes the same turn.
func (c *conversation) separate(role string) {
	if n := len(c.turns); n > 0 && c.turns[n-1].message.GetRole() == role {
		c.turns[n-1].content.separate()
		c.turns[n-1].reasoning.separate()
	}
}

// messages returns the messages of the request, and the field that each comes from.
func (c *conversation) messages() (all []*chatv1.Message, origins []string) {
	for _, t := range c.turns {
		t.message.Content, t.message.Reasoning = t.content.text.String(), t.reasoning.text.String()
		all, origins = append(all, t.message), append(origins, t.from)
	}
	return all, origins
}

// A passage is a text of many pieces, which are joined in linear time.
type passage struct {
	text  strings.Builder
	apart bool // a paragraph separates the next piece from the text
}

// separate has a paragraph separate the next piece from the text, if there is any.
func (p *passage) separate() { p.apart = p.text.Len() > 0 }

// write appends a piece.
func (p *passage) write(piece string) {
	if piece == "" {
		return
	}
	if p.apart {
		p.text.WriteString(paragraph)
		p.apart = false
	}
	p.text.WriteString(piece)
}
