package toolcall

import (
	"slices"
	"strings"

	"github.com/whence-dev/whence/chat-service/reasoning"
)

// xmlWords are the tags of calls as XML:
//
//	<function=NAME><parameter=KEY>VALUE</parameter></function>
//	<invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>
type xmlWords struct {
	calls, values       []string // beginnings of tags, up to the name
	callEnds, valueEnds []string
	cdata               bool // values may be CDATA sections
}

// xmlOf returns the tags of words for calls and parameters. Models write names with and without quotes
// and "name=".
func xmlOf(call, value string, others ...string) (w xmlWords) {
	begins := func(word string) []string { return []string{"<" + word + "=", "<" + word + " "} }
	w.values, w.valueEnds = begins(value), []string{"</" + value + ">"}
	for _, call := range append([]string{call}, others...) {
		w.calls, w.callEnds = append(w.calls, begins(call)...), append(w.callEnds, "</"+call+">")
	}
	return w
}

func (w *xmlWords) markers() []string { return slices.Concat(w.callEnds, w.valueEnds) }

// tag returns the rest of a tag, and its length with the closing bracket. A model may forget the
// bracket, so that a line end and the next tag end the tag, too.
func (p *Parser) tag() (rest string, n int, _ word) {
	end := strings.IndexAny(p.buf, ">\n<")
	switch {
	case end < 0 && !p.last && len(p.buf) <= maxHead:
		return "", 0, unsure
	case end < 0 || end > maxHead:
		return "", 0, differs
	case p.buf[end] == '>':
		return p.buf[:end], end + 1, there
	}
	return p.buf[:end], end, there
}

// attribute returns the name in the rest of a tag, and what follows the name.
func attribute(rest string) (name, other string) {
	rest = strings.TrimSpace(rest)
	if after, ok := strings.CutPrefix(rest, "name"); ok && strings.HasPrefix(strings.TrimSpace(after), "=") {
		rest = strings.TrimSpace(after)
	}
	rest = strings.TrimSpace(strings.TrimPrefix(rest, "="))
	if rest != "" && strings.ContainsAny(rest[:1], `"'`) {
		name, other, _ = strings.Cut(rest[1:], rest[:1])
		return name, other
	}
	name, other, _ = strings.Cut(rest, " ")
	return name, other
}

// call follows the beginning of an XML call's tag. A bare call has no opening tag before it.
func (t *tags) call(bare bool) state {
	return func(p *Parser) bool {
		rest, n, w := p.tag()
		if w == unsure {
			return false
		}
		name, _ := attribute(rest)
		if name = p.tool(name); w == differs || name == "" {
			return p.backToText(t.text)
		}
		name = strings.Clone(name)
		p.consume(n)
		p.state = t.body(name, bare)
		return true
	}
}

// body follows the tag of an XML call. Parameters follow, or the end, or the arguments as JSON. After
// a bare tag, anything else is text: it may be prose about calls.
func (t *tags) body(name string, bare bool) state {
	next := slices.Concat(t.xml.values, t.closes)
	parameters := t.parameters
	if t.nested {
		parameters = t.nestedParameters
	}
	return func(p *Parser) bool {
		more := p.skipSpace()
		_, w := p.oneOf(next)
		switch {
		case !more && !p.last:
			return false
		case more && p.buf[0] == '{':
			p.begin(name)
			p.state = p.value(t.closing)
		case more && w == unsure:
			return false
		case bare && w == differs:
			return p.backToText(t.text)
		default:
			p.begin(name)
			p.state = parameters(&arguments{tool: name})
		}
		return true
	}
}

// seek drops text up to the first of stops, of which the first values begin a key or a parameter; any
// other ends the call. which is the index of the stop that begins one, or -1, and then goOn is the result
// of the state.
func (t *tags) seek(p *Parser, a *arguments, stops []string, values int) (which int, goOn bool) {
	at, which := reasoning.FindMarker(p.buf, p.last, stops...)
	p.buf = p.buf[at:]
	if which < values {
		return which, false
	}
	p.arguments(a.end())
	p.complete()
	p.state = t.closing
	return -1, true
}

// parameters is the state between parameters. It drops other text up to the end of the call.
func (t *tags) parameters(a *arguments) state {
	stops := slices.Concat(t.xml.values, t.closes, t.begins)
	return func(p *Parser) bool {
		which, goOn := t.seek(p, a, stops, len(t.xml.values))
		if which < 0 {
			return goOn
		}
		open := p.buf
		p.buf = open[len(stops[which]):]
		rest, n, w := p.tag()
		switch w {
		case unsure:
			p.buf = open
			return false
		case there:
			key, other := attribute(rest)
			p.arguments(a.open(p, key, other))
			p.buf = p.buf[n:]
			p.state = t.parameter(a)
		case differs: // the tag is dropped
		}
		return true
	}
}

const (
	cdataOpen  = "<![CDATA["
	cdataClose = "]]>"
)

// parameter is the state at the beginning of a parameter's value.
func (t *tags) parameter(a *arguments) state {
	stops := slices.Concat(t.xml.valueEnds, t.xml.values, t.closes)
	within := valueUntil(a, stops, len(t.xml.valueEnds), t.parameters(a))
	if !t.xml.cdata {
		return within
	}
	return func(p *Parser) bool {
		switch p.prefix(cdataOpen) {
		case unsure:
			return false
		case there:
			p.buf = p.buf[len(cdataOpen):]
			a.value.begun = true // a line end belongs to the section
			p.state = valueUntil(a, []string{cdataClose}, 1, t.parameters(a))
		case differs:
			p.state = within
		}
		return true
	}
}
