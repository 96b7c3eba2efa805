package toolcall

import (
	"regexp"
	"strings"
)

// Functionary31 is the format of Functionary 3.1: an object in a tag.
var Functionary31 = tagged("functionary-v3.1", `<function=[^<>\s]+>\s*\{`, tags{xml: xmlOf("function", "parameter")},
	func(tool string) (string, string) { return "<function=" + tool + ">", "</function>" })

// Functionary32 is the format of Functionary 3.2. A recipient precedes each part of the answer: a tool,
// or "all" for text. The prompt ends with the first marker.
//
//	all
//	I look.>>>get_weather
//	{"city": "Paris"}
var Functionary32 = &Format{
	Name: "functionary-v3.2", Markers: []string{functionaryNext}, begin: functionaryHead, id: longID,
	detect: regexp.MustCompile(functionaryNext + `|^get_weather\n\{`),
	around: func(tool string) (string, string) { return tool + "\n", "" },
}

const functionaryNext = ">>>"

func functionaryText(p *Parser) bool {
	if p.until(functionaryNext) < 0 {
		return false
	}
	p.state = functionaryHead
	return true
}

// functionaryHead expects a recipient.
func functionaryHead(p *Parser) bool {
	n := nameEnd(p.buf)
	rest := strings.TrimLeft(p.buf[n:], space)
	switch {
	case n > maxWord || len(p.buf)-len(rest) > maxHead:
		return p.backToText(functionaryText)
	case rest == "" && !p.last:
		return false
	case !strings.HasPrefix(p.buf[n:], "\n"):
		return p.backToText(functionaryText)
	}
	switch name := p.tool(p.buf[:n]); {
	case name != "" && strings.HasPrefix(rest, "{"):
		p.begin(strings.Clone(name))
		p.buf, p.state = rest, p.value(functionaryText)
		return true
	case p.buf[:n] == "all":
		p.raw, p.buf = "", p.buf[n+1:]
	}
	return p.backToText(functionaryText)
}
