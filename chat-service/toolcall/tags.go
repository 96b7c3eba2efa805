package toolcall

import (
	"regexp"
	"slices"
	"strings"
)

// A tags reads calls between tags. A call is JSON, XML, or a name with keys and values. Models mix
// these forms whatever their template shows, so that all of them are read after every opening tag.
type tags struct {
	open, close []string // tags around one call or several, of which outer tags may contain inner tags
	xml         xmlWords // the zero value if no call is XML
	keys        keyWords // the zero value if no call has keys and values
	keyed       bool     // a JSON object has the tool's name as its only key

	begins []string // opening tags, and then beginnings of XML calls, which may lack their opening tag
	closes []string // what ends a call besides its own last byte
}

// tagged returns a format of calls between tags. around gives the form of a guided call; nil is JSON
// between the first tags.
func tagged(name, detect string, t tags, around func(tool string) (before, after string)) *Format {
	t.begins = slices.Concat(t.open, t.xml.calls)
	t.closes = slices.Concat(t.close, t.xml.callEnds)
	if around == nil {
		around = func(tool string) (string, string) {
			return t.open[0] + "\n{\"name\": \"" + tool + "\", \"arguments\": ", "}\n" + t.close[0]
		}
	}
	return &Format{
		Name: name, begin: t.text, id: longID, around: around, detect: regexp.MustCompile(detect),
		Markers: slices.Concat(t.open, t.close, t.xml.markers(), t.keys.markers()),
	}
}

func (t *tags) text(p *Parser) bool {
	which := p.until(t.begins...)
	switch {
	case which < 0:
		return false
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
	which, w := p.oneOf(t.begins)
	switch {
	case w == unsure:
		return false
	case w == there && len(p.raw) < maxHead:
		if p.consume(len(t.begins[which])); which >= len(t.open) {
			p.state = t.call(false)
		}
		return true
	case t.keys.key != "":
		p.state = t.name
		return true
	}
	return p.backToText(t.text)
}

// item expects an object of a list, or the next of several objects.
func (t *tags) item(p *Parser) bool {
	if !p.skipSpace() {
		return false
	}
	if p.buf[0] != '{' {
		return p.backToText(t.text)
	}
	p.state = p.objectOf(object{keyed: t.keyed}, t.tail, t.text)
	return true
}

// tail follows an object. Another object, or the end of the list, may follow.
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
