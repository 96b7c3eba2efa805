package toolcall

import (
	"slices"
	"strings"

	"github.com/whence-dev/whence/chat-service/reasoning"
)

// messages are the markers of answers that consist of messages with headers. The prompt ends with
// the beginning of the first header, so that an answer without a header is text.
type messages struct {
	begins []string // beginnings of the rest of a header
	ends   []string // what ends a message, also if it is misplaced
	// address returns the kind of the message after a header, or the state in which to read it.
	address func(p *Parser, header string) (Kind, state)
}

const (
	messageStart = "<|start|>"
	messageBody  = "<|message|>"
)

// begin expects a header at the beginning of the answer.
func (m *messages) begin(p *Parser) bool {
	switch _, w := p.oneOf(m.begins); w {
	case unsure:
		return false
	case there:
		p.state = m.header
	default:
		p.state = m.body(Text, false)
	}
	return true
}

// header reads up to "<|message|>": the role, the channel and the recipient.
func (m *messages) header(p *Parser) bool {
	header, w := p.head(messageBody)
	switch w {
	case unsure:
		return false
	case there:
		p.buf = p.buf[len(header)+len(messageBody):]
		kind, reads := m.address(p, header)
		if p.state = reads; reads == nil {
			p.state = m.body(kind, true)
		}
	case differs:
		if p.last && m.begun(p.buf) {
			p.buf = "" // the answer was cut off inside the header, which is not text
			return false
		}
		p.state = m.body(Text, false)
		if which, w := p.oneOf(m.ends); w == there { // the body would end at it immediately
			p.buf = p.buf[len(m.ends[which]):]
		}
	}
	return true
}

// begun reports whether s is the beginning of a header.
func (m *messages) begun(s string) bool {
	begins := func(first string) bool { return strings.HasPrefix(s, first) || strings.HasPrefix(first, s) }
	return len(s) <= maxHead && (begins("assistant") || slices.ContainsFunc(m.begins, begins))
}

// body reads a message, which has a header or is the rest of an answer without one. A header follows
// between two messages.
func (m *messages) body(kind Kind, headed bool) state {
	begun := !headed
	return func(p *Parser) bool {
		at, which := reasoning.FindMarker(p.buf, p.last, m.ends...)
		body := p.buf[:at]
		if body != "" && !begun && kind != Arguments {
			begun = true
			if p.spoke[kind] { // a line of its own
				body = "\n" + body
			}
		}
		if body != "" && kind != Arguments {
			p.spoke[kind] = true
		}
		switch {
		case body == "":
		case kind == Text:
			p.text(body)
		default:
			p.out(Event{kind, body})
		}
		if p.buf = p.buf[at:]; which < 0 {
			return false
		}
		if kind == Arguments {
			p.complete()
		}
		if !slices.Contains(m.begins, m.ends[which]) { // it belongs to the next header
			p.buf = p.buf[len(m.ends[which]):]
		}
		p.state = m.between
		return true
	}
}

// between follows a message.
func (m *messages) between(p *Parser) bool {
	if p.prefix(messageStart) == there {
		p.buf = p.buf[len(messageStart):]
	}
	if p.buf == "" || p.prefix(messageStart) == unsure {
		return false
	}
	p.state = m.header
	return true
}
