package toolcall

import "strings"

const (
	mistralOpen = "[TOOL_CALLS]"
	mistralArgs = "[ARGS]"
	mistralID   = "[CALL_ID]"
)

func mistralText(p *Parser) bool {
	if p.until(mistralOpen) < 0 {
		return false
	}
	p.state = mistralHead
	return true
}

// mistralHead is behind the marker: a list of objects, or a name.
func mistralHead(p *Parser) bool {
	if !p.skipSpace() {
		return false
	}
	switch {
	case p.buf[0] == '[':
		p.consume(1)
		p.state = mistralItem
	case strings.Contains(space, p.buf[:1]): // more than a call can have
		return p.no(mistralText)
	default:
		p.state = mistralName
	}
	return true
}

// mistralItem is where an object of the list begins.
func mistralItem(p *Parser) bool {
	if !p.skipSpace() {
		return false
	}
	if p.buf[0] != '{' {
		return p.no(mistralText)
	}
	p.state = p.object(mistralNext, mistralText)
	return true
}

// mistralNext is behind an object of the list.
func mistralNext(p *Parser) bool {
	switch {
	case !p.skipSpace():
		return false
	case p.buf[0] == ',':
		p.consume(1)
		p.state = mistralItem
		return true
	case p.buf[0] == ']':
		p.raw, p.buf = "", p.buf[1:]
	}
	return p.no(mistralText)
}

// mistralName is a name with its arguments.
func mistralName(p *Parser) bool {
	head, w := p.head("{")
	if w != there {
		return w == differs && p.no(mistralText)
	}
	name, _ := strings.CutSuffix(strings.TrimSpace(head), mistralArgs)
	name, _, _ = strings.Cut(name, mistralID)
	if name = strings.TrimSpace(name); !p.known(name) {
		return p.no(mistralText)
	}
	p.begin(name)
	p.buf, p.state = p.buf[len(head):], p.value(mistralText)
	return true
}

// value gives out the JSON value that begins here as arguments; next is behind it.
func (p *Parser) value(next state) state {
	n := new(nest)
	return func(p *Parser) bool {
		for i := range len(p.buf) {
			if n.read(p.buf[i]) {
				p.arguments(p.buf[:i+1])
				p.complete()
				p.buf, p.state = p.buf[i+1:], next
				return true
			}
		}
		p.arguments(p.buf)
		p.buf = ""
		return false
	}
}
