package toolcall

import (
	"slices"
	"strings"
)

// headWords are the markers of calls whose name precedes the arguments as JSON.
type headWords struct {
	name, nameEnd, args string
	numbered            bool // the name is an id of the form functions.NAME:NUMBER
}

func (n *headWords) markers() []string {
	return slices.DeleteFunc([]string{n.name, n.nameEnd, n.args}, func(m string) bool { return m == "" })
}

// namedHead expects the name of a call and the marker of its arguments.
func (t *tags) namedHead(p *Parser) bool {
	head, w := p.head(t.heading.args)
	if w == unsure && len(p.raw)+len(p.buf) <= maxHead {
		return false
	}
	name := head
	if t.heading.name != "" {
		_, name, _ = strings.Cut(name, t.heading.name)
		name, _, _ = strings.Cut(name, t.heading.nameEnd)
	}
	name, id := strings.TrimSpace(name), ""
	if colon := strings.LastIndexByte(name, ':'); colon >= 0 && t.heading.numbered {
		name, id = name[:colon], strings.Clone(name)
	}
	if name = p.tool(name); w != there || name == "" {
		return p.backToText(t.text)
	}
	name = strings.Clone(name)
	p.consume(len(head) + len(t.heading.args))
	p.state = func(p *Parser) bool {
		if !p.skipSpace() && !p.last {
			return false
		}
		if id != "" {
			p.identify(id)
		}
		p.begin(name)
		p.state = p.jsonArguments(t.closing)
		return true
	}
	return true
}
