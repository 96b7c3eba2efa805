package toolcall

import (
	"regexp"
	"strings"
)

// Kimi is the format of Kimi K2. The model gives each call an id, such as functions.search:0, by
// which it refers to the call later.
var Kimi = &Format{
	Name: "kimi", Markers: kimiMarkers, begin: kimiText, id: longID,
	detect: regexp.MustCompile(`<\|tool_calls?_section_begin\|>|<\|tool_call_argument_begin\|>`),
	around: func(tool string) (string, string) {
		return kimiOpen + kimiBegin + "functions." + tool + ":0" + kimiArguments, kimiEnd + kimiClose
	},
}

const (
	kimiOpen      = "<|tool_calls_section_begin|>"
	kimiClose     = "<|tool_calls_section_end|>"
	kimiBegin     = "<|tool_call_begin|>"
	kimiArguments = "<|tool_call_argument_begin|>"
	kimiEnd       = "<|tool_call_end|>"
)

var (
	kimiMarkers = []string{kimiOpen, kimiClose, kimiBegin, kimiArguments, kimiEnd}
	kimiOpens   = []string{kimiBegin, kimiOpen, "<|tool_call_section_begin|>"}
	kimiCloses  = []string{kimiEnd, kimiClose, "<|tool_call_section_end|>"}
)

func kimiText(p *Parser) bool {
	switch p.until(kimiOpens...) {
	case -1:
		return false
	case 0:
		p.state = kimiHead
	default:
		p.state = kimiNext
	}
	return true
}

// kimiNext expects a call after the beginning of the section.
func kimiNext(p *Parser) bool {
	p.skipSpace()
	switch p.prefix(kimiBegin) {
	case unsure:
		return false
	case there:
		p.consume(len(kimiBegin))
		p.state = kimiHead
		return true
	default:
		return p.backToText(kimiText)
	}
}

// kimiHead reads the id of a call, which has the name of the tool.
func kimiHead(p *Parser) bool {
	id, w := p.head(kimiArguments)
	if w != there {
		return w == differs && p.backToText(kimiText)
	}
	n := len(id) + len(kimiArguments)
	id = strings.TrimSpace(id)
	name := id
	if colon := strings.LastIndexByte(id, ':'); colon >= 0 {
		name = id[:colon]
	}
	if name = p.tool(name); name == "" {
		return p.backToText(kimiText)
	}
	if id != name {
		p.identify(strings.Clone(id))
	}
	p.begin(strings.Clone(name))
	p.buf, p.state = p.buf[n:], kimiValue
	return true
}

// kimiValue expects the arguments, which may be missing.
func kimiValue(p *Parser) bool {
	if !p.skipSpace() {
		return false
	}
	p.raw = ""
	if p.buf[0] != '{' {
		p.arguments("{}")
		p.complete()
		p.state = kimiTail
		return true
	}
	p.state = p.value(kimiTail)
	return true
}

// kimiTail follows the arguments. Another call, or the end of the section, may follow the end of the
// call.
func kimiTail(p *Parser) bool {
	p.skipSpace()
	for _, m := range kimiCloses {
		switch p.prefix(m) {
		case unsure:
			return false
		case there:
			p.raw, p.buf = "", p.buf[len(m):]
			return true
		case differs:
		}
	}
	return p.backToText(kimiText)
}
