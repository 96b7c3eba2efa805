package toolcall

import (
	"regexp"
	"strings"
)

const llamaTag = "<|python_tag|>"

// Llama is the format of Llama 3: the answer is JSON.
var Llama = &Format{
	Name: "llama", Markers: []string{llamaTag}, begin: llamaBegin, id: longID,
	detect: regexp.MustCompile(`^\s*\{"name": "[^"]*", "parameters": |(?s:ipython.*"parameters": |"parameters": .*ipython)`),
	around: func(tool string) (string, string) { return `{"name": "` + tool + `", "parameters": `, "}" },
}

// llamaBegin is the beginning of the answer, the only place where plain JSON is a call.
func llamaBegin(p *Parser) bool {
	if !p.skipSpace() {
		return false
	}
	if p.buf[0] == '{' {
		p.state = p.object(llamaTail, llamaText)
		return true
	}
	if p.prefix(llamaTag) == unsure {
		return false
	}
	return p.backToText(llamaText)
}

func llamaText(p *Parser) bool {
	if p.until(llamaTag) < 0 {
		return false
	}
	p.state = llamaBegin
	return true
}

// llamaTail follows a call. Some models write another call after a semicolon or a comma.
func llamaTail(p *Parser) bool {
	if !p.skipSpace() {
		return false
	}
	if !strings.ContainsAny(p.buf[:1], ";,") {
		return p.backToText(llamaText)
	}
	p.consume(1)
	p.state = llamaBegin
	return true
}
