package toolcall

import (
	"regexp"
	"slices"
	"strings"
)

// A tags reads calls between tags. A call is JSON, XML, or a name with keys and values. Models mix
// these forms whatever their template shows, so that all of them are read after every opening tag.
type tags struct {
	open, close []string          // tags around one call or several; outer tags may contain inner tags
	xml         xmlWords          // the zero value if no call is XML
	keys        keyWords          // the zero value if no call has keys and values
	heading     headWords         // the zero value if no name precedes JSON
	nested      bool              // the parameters of XML calls are tags of their own; see nested.go
	keyed       bool              // a JSON object has the tool's name as its only key
	python      bool              // a call may be Python's
	first       bool              // calls may begin the answer without a tag
	fenced      bool              // calls may stand in a fence
	other       func(*tags) state // reads a call in a form that no other family has; nil if there is none
	ends        []string          // end the part of the answer that has calls
	after       state             // reads what follows one of ends

	begins []string // opening tags, and then beginnings of XML calls, which may lack their opening tag
	stops  []string // begins and ends
	heads  []string // opening tags and fences, and then beginnings of XML calls
	closes []string // what ends a call besides its own last byte
}

// tagged returns a format of calls between tags. around gives the form of a guided call; nil is JSON
// between the first tags.
func tagged(name, detect string, t tags, around func(tool string) (before, after string)) *Format {
	t.begins = slices.Concat(t.open, t.xml.calls)
	t.closes = slices.Concat(t.close, t.xml.callEnds)
	t.stops = slices.Concat(t.begins, t.ends)
	t.heads = t.begins
	begin := t.text
	if t.fenced {
		t.heads = slices.Concat(t.open, fences, t.xml.calls)
		t.closes = append(t.closes, fences[0])
	}
	if t.first {
		begin = t.start
	}
	if around == nil {
		around = func(tool string) (string, string) {
			return t.open[0] + "\n{\"name\": \"" + tool + "\", \"arguments\": ", "}\n" + t.close[0]
		}
	}
	return &Format{
		Name: name, begin: begin, opens: t.begins, id: longID, around: around, detect: regexp.MustCompile(detect),
		Markers: slices.Concat(t.open, t.close, t.xml.markers(), t.keys.markers(), t.heading.markers()),
	}
}

// fences are the beginnings of code blocks, and the first is also their end.
var fences = []string{"```", "```json", "```python"}

// start is the beginning of the answer. Calls there need no opening tag.
func (t *tags) start(p *Parser) bool {
	if !p.skipSpace() {
		return false
	}
	if strings.ContainsAny(p.buf[:1], "{[") || t.fenced && p.buf[0] == '`' {
		p.state = t.head
		return true
	}
	return p.backToText(t.text)
}

func (t *tags) text(p *Parser) bool {
	which := p.until(t.stops...)
	switch {
	case which < 0:
		return false
	case which >= len(t.begins):
		p.raw, p.state = "", t.after
	case which < len(t.open):
		p.state = t.head
	default:
		p.state = t.call(true)
	}
	return true
}

// head follows an opening tag.
func (t *tags) head(p *Parser) bool {
	p.list = false
	if !p.skipSpace() {
		return false
	}
	switch p.buf[0] {
	case '{':
		p.state = p.objectOf(object{keyed: t.keyed}, t.tail, t.text)
		return true
	case '[':
		p.list = true
		p.consume(1)
		p.state = t.item
		return true
	}
	which, w := p.oneOf(t.heads)
	switch {
	case w == unsure:
		return false
	case w == there && len(p.raw) < maxHead:
		if p.consume(len(t.heads[which])); which >= len(t.heads)-len(t.xml.calls) {
			p.state = t.call(false)
		}
		return true
	case t.keys.key != "":
		p.state = t.name
		return true
	case t.python:
		p.state = p.python(t.tail, t.text)
		return true
	case t.heading.args != "":
		p.state = t.namedHead
		return true
	case t.other != nil && !strings.Contains(space, p.buf[:1]): // more than the head of a call may have
		p.state = t.other(t)
		return true
	}
	return p.backToText(t.text)
}

// item expects an object or a call of Python in a list, or the next one of several.
func (t *tags) item(p *Parser) bool {
	switch {
	case !p.skipSpace():
		return false
	case p.buf[0] == '{':
		p.state = p.objectOf(object{keyed: t.keyed}, t.tail, t.text)
	case t.python:
		p.state = p.python(t.tail, t.text)
	default:
		return p.backToText(t.text)
	}
	return true
}

// tail follows an object or a call of Python. Another one, or the end of the list, may follow.
func (t *tags) tail(p *Parser) bool {
	if !p.skipSpace() {
		return p.last && p.backToText(t.text)
	}
	switch {
	case p.buf[0] == '{', strings.ContainsAny(p.buf[:1], ",;"):
		if p.buf[0] != '{' {
			p.consume(1)
		}
		p.state = t.item
	case t.python && nameEnd(p.buf) > 0: // in the next line
		p.state = t.item
	case p.buf[0] == ']' && p.list:
		p.raw, p.buf, p.list = "", p.buf[1:], false
	default:
		p.state = t.closing
	}
	return true
}

// closing looks for closing tags. A call without a closing tag is still a call.
func (t *tags) closing(p *Parser) bool {
	p.skipSpace()
	which, w := p.oneOf(t.closes)
	switch w {
	case unsure:
		return false
	case there:
		p.raw, p.buf = "", p.buf[len(t.closes[which]):]
		return true
	default:
		return p.backToText(t.text)
	}
}
