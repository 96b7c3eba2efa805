package toolcall

import (
	"regexp"
	"strings"
)

// Inkling is the format of Inkling. The whole answer consists of messages, and the kind of a call's
// message follows the name of the tool. The prompt ends with the first marker. Package reasoning
// reads the other messages.
//
//	<|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris"}}<|end_message|>
var Inkling = &Format{
	Name: "inkling", Markers: []string{inklingCall, inklingEnd}, begin: inklingHead, opens: []string{inklingCall}, id: longID,
	detect: regexp.MustCompile(`<\|content_invoke_tool_json\|>`),
	around: func(tool string) (string, string) {
		return tool + inklingCall + `{"name":"` + tool + `","args":`, "}" + inklingEnd
	},
}

const (
	inklingOpen = "<|message_model|>"
	inklingCall = "<|content_invoke_tool_json|>"
	inklingEnd  = "<|end_message|>"
)

func inklingText(p *Parser) bool {
	switch p.until(inklingOpen, inklingCall) {
	case 0:
		p.state = inklingHead
	case 1:
		p.state = inklingObject
	default:
		return false
	}
	return true
}

// inklingHead follows the marker of a message, and expects the name of a tool and the marker of a
// call.
func inklingHead(p *Parser) bool {
	n := nameEnd(p.buf)
	switch rest := p.buf[n:]; {
	case n > maxWord:
		return p.backToText(inklingText)
	case strings.HasPrefix(rest, inklingCall):
	case !p.last && strings.HasPrefix(inklingCall, rest):
		return false
	default:
		return p.backToText(inklingText)
	}
	p.consume(n + len(inklingCall))
	p.state = inklingObject
	return true
}

// inklingObject expects the object of a call.
func inklingObject(p *Parser) bool {
	if !p.skipSpace() {
		return false
	}
	if p.buf[0] != '{' {
		return p.backToText(inklingText)
	}
	p.state = p.object(inklingTail, inklingText)
	return true
}

// inklingTail drops the end of a call's message.
func inklingTail(p *Parser) bool {
	p.skipSpace()
	switch p.prefix(inklingEnd) {
	case unsure:
		return false
	case there:
		p.raw, p.buf = "", p.buf[len(inklingEnd):]
	case differs:
	}
	return p.backToText(inklingText)
}
