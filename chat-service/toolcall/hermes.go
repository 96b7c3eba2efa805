package toolcall

import "regexp"

const (
	hermesOpen  = "<tool_call>"
	hermesClose = "</tool_call>"
	xmlOpen     = "<function="
	xmlClose    = "</function>"
)

// Hermes is the format of NousResearch's models and of Qwen: JSON in tags. Qwen3-Coder writes
// XML in the same tags.
var Hermes = &Format{
	Name: "hermes", Markers: []string{hermesOpen, hermesClose}, begin: hermesText, id: longID,
	detect: regexp.MustCompile(hermesOpen),
	around: func(tool string) (string, string) {
		return hermesOpen + "\n{\"name\": \"" + tool + "\", \"arguments\": ", "}\n" + hermesClose
	},
}

func hermesText(p *Parser) bool {
	if p.until(hermesOpen) < 0 {
		return false
	}
	p.state = hermesHead
	return true
}

// hermesHead follows the opening tag.
func hermesHead(p *Parser) bool {
	if !p.skipSpace() {
		return false
	}
	if p.buf[0] == '{' {
		p.state = p.object(hermesTail, hermesText)
		return true
	}
	switch p.prefix(xmlOpen) {
	case unsure:
		return false
	case there:
		p.consume(len(xmlOpen))
		p.state = xmlName
		return true
	default:
		return p.backToText(hermesText)
	}
}

// hermesTail looks for the closing tag. A call without a closing tag is still a call.
func hermesTail(p *Parser) bool {
	p.skipSpace()
	switch p.prefix(hermesClose) {
	case unsure:
		return false
	case there:
		p.raw, p.buf = "", p.buf[len(hermesClose):]
	case differs:
	}
	return p.backToText(hermesText)
}
