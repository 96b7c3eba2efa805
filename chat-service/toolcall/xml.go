package toolcall

import (
	"strings"

	"github.com/whence-dev/whence/chat-service/marker"
)

const (
	parameterOpen  = "<parameter="
	parameterClose = "</parameter>"
)

// xmlArguments converts arguments of the form <parameter=key>value</parameter> to a JSON object.
type xmlArguments struct {
	tool  string
	begun bool
	value xmlValue // the current value
}

// open returns the text before a member of the object.
func (x *xmlArguments) open(key string) string {
	before := ", "
	if !x.begun {
		before, x.begun = "{", true
	}
	return before + `"` + escaped(key) + `": `
}

// xmlParameters is the state between parameters. It drops other text up to the end of the call.
func xmlParameters(x *xmlArguments) state {
	return func(p *Parser) bool {
		at, which := marker.Find(p.buf, p.last, parameterOpen, xmlClose, hermesClose)
		p.buf = p.buf[at:]
		switch which {
		case 0:
			head, w := p.head(">")
			switch w {
			case unsure:
				return false
			case differs:
				p.buf = p.buf[len(parameterOpen):]
			case there:
				key := head[len(parameterOpen):]
				p.arguments(x.open(key))
				x.value = xmlValue{takes: p.takes(x.tool, key)}
				p.buf, p.state = p.buf[len(head)+1:], xmlWithin(x)
			}
			return true
		case 1:
			p.buf = p.buf[len(xmlClose):]
		case -1:
			return false
		}
		if !x.begun {
			p.arguments("{")
		}
		p.arguments("}")
		p.complete()
		p.state = hermesTail
		return true
	}
}

// xmlWithin is the state within a parameter.
func xmlWithin(x *xmlArguments) state {
	return func(p *Parser) bool {
		at, which := marker.Find(p.buf, p.last, parameterClose)
		piece := p.buf[:at]
		p.buf = p.buf[at:]
		switch {
		case which >= 0:
			p.arguments(x.value.next(piece, closed))
			p.buf, p.state = p.buf[len(parameterClose):], xmlParameters(x)
			return true
		case p.last:
			p.arguments(x.value.next(piece, cut))
		default:
			p.arguments(x.value.next(piece, open))
		}
		return false
	}
}

// xmlName follows "<function=".
func xmlName(p *Parser) bool {
	name, w := p.head(">")
	switch {
	case w == unsure:
		return false
	case w == differs || !p.known(name):
		return p.backToText(hermesText)
	}
	p.begin(name)
	p.buf = p.buf[len(name)+1:]
	p.state = xmlParameters(&xmlArguments{tool: strings.Clone(name)})
	return true
}
