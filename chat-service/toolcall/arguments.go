package toolcall

import (
	"strings"

	"github.com/whence-dev/whence/chat-service/reasoning"
)

// arguments converts keys and values of a call to a JSON object.
type arguments struct {
	tool  string
	begun bool
	value typedValue // the current value
}

// open begins the value of a key, and returns the text before the value. other has the attributes
// of its tag; DeepSeek's attribute says whether the value is text.
func (a *arguments) open(p *Parser, key, other string) string {
	takes := p.takes(a.tool, key)
	if takes == AnyValue && strings.Contains(other, `string="true"`) {
		takes = TextValue
	}
	a.value = typedValue{takes: takes}
	before := ", "
	if !a.begun {
		before, a.begun = "{", true
	}
	return before + `"` + escaped(key) + `": `
}

// end returns the text after the last value.
func (a *arguments) end() string {
	if !a.begun {
		return "{}"
	}
	return "}"
}

// valueUntil is the state within a value. It consumes the first own of stops, which close the value.
// The other stops belong to what follows a value that is not closed.
func valueUntil(a *arguments, stops []string, own int, next state) state {
	return func(p *Parser) bool {
		at, which := reasoning.FindMarker(p.buf, p.last, stops...)
		piece := p.buf[:at]
		p.buf = p.buf[at:]
		switch {
		case which >= 0:
			p.arguments(a.value.next(piece, closed))
			if which < own {
				p.buf = p.buf[len(stops[which]):]
			}
			p.state = next
			return true
		case p.last:
			p.arguments(a.value.next(piece, cut))
		default:
			p.arguments(a.value.next(piece, open))
		}
		return false
	}
}
