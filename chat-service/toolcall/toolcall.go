// Package toolcall finds tool calls in a model's text while the model writes it.
//
// A Parser takes an answer's text in pieces and emits Events: text, reasoning, where its Format marks reasoning in
// the same way, and calls. The joined events do not depend on how the text is cut. A call is emitted once its tool
// and the beginning of its arguments are known, its arguments as they come: they are the model's, byte for byte, and
// not validated. Complete follows the last byte of the arguments at once, without waiting for the closing marker; an
// answer that ends within arguments leaves them unfinished. XML is converted to JSON on the way.
//
// Text that only resembles a call, because its form is broken or there is no such tool, stays text, and nothing is
// lost. White space between calls, and between text and a call, belongs to neither.
package toolcall

import (
	"strings"

	"github.com/whence-dev/whence/chat-service/marker"
)

// A Kind is what an Event is a piece of.
type Kind uint8

// The kinds of events.
const (
	Text Kind = iota
	Reasoning
	Begin     // of a call; Event.Text is the tool's name
	Arguments // of the call that has begun last
	Complete  // the arguments of that call are; Event.Text is empty
)

// An Event is a piece of an answer.
type Event struct {
	Kind Kind
	Text string
}

// maxHead bounds what is held back until a call is known to be one, in bytes; longer heads are text.
const maxHead = 4096

// A Parser reads one answer. It is not safe for concurrent use.
type Parser struct {
	// Static.
	known  func(tool string) bool
	takes  func(tool, parameter string) Value
	hidden *strings.Replacer // special tokens, which clients must not see
	out    func(Event)

	state state
	buf   string // what state has not consumed
	last  bool   // nothing follows buf
	raw   string // of the call that is not known to be one yet
	space string // white space behind text
	wide  bool   // it was too much to be held back
	json  object
}

// A state consumes from the front of p.buf, and reports whether it is worth calling the next one: false asks for more text.
type state func(p *Parser) bool

// New returns a Parser for answers in the format f. known says which tools there are, takes what their parameters are; hidden are the
// model's special tokens that f has a use for, and text has none; out gets the events.
func New(f *Format, known func(tool string) bool, takes func(tool, parameter string) Value, hidden []string, out func(Event)) *Parser {
	var pairs []string
	for _, token := range hidden {
		pairs = append(pairs, token, "")
	}
	return &Parser{known: known, takes: takes, hidden: strings.NewReplacer(pairs...), out: out, state: f.begin}
}

// Next takes the next piece.
func (p *Parser) Next(piece string) {
	p.buf += piece
	p.run()
}

// End is for when nothing follows.
func (p *Parser) End() {
	p.last = true
	p.run()
	p.text(p.raw + p.buf)
	if p.raw, p.buf = "", ""; p.space != "" {
		p.out(Event{Text, p.space})
		p.space = ""
	}
}

func (p *Parser) run() {
	for more := true; more; {
		more = p.state(p)
	}
}

const space = " \t\r\n"

// text gives out text, but for the white space behind it.
func (p *Parser) text(s string) {
	s = p.space + p.hidden.Replace(s)
	trimmed := strings.TrimRight(s, space)
	p.wide = len(s)-len(trimmed) > maxHead || p.wide && trimmed == ""
	if p.wide { // nobody waits for a call behind that
		trimmed = s
	}
	p.space = s[len(trimmed):]
	if trimmed != "" {
		p.out(Event{Text, trimmed})
	}
}

// begin gives out that a call begins.
func (p *Parser) begin(tool string) {
	p.raw, p.space = "", ""
	p.out(Event{Begin, tool})
}

// arguments gives out a piece of arguments.
func (p *Parser) arguments(s string) {
	if s != "" {
		p.out(Event{Arguments, s})
	}
}

// complete gives out that the arguments of a call are complete.
func (p *Parser) complete() { p.out(Event{Kind: Complete}) }

// consume moves n bytes from buf to raw.
func (p *Parser) consume(n int) {
	p.raw += p.buf[:n]
	p.buf = p.buf[n:]
}

// skipSpace consumes white space, and reports whether anything follows it: something that is no part of a call, if it is still white
// space, of which a model may write without end.
func (p *Parser) skipSpace() bool {
	n := len(p.buf) - len(strings.TrimLeft(p.buf, space))
	p.consume(max(0, min(n, maxHead-len(p.raw))))
	return p.buf != ""
}

// no is for what is no call after all: it is text, and so is what follows, until next finds another one.
func (p *Parser) no(next state) bool {
	raw := p.raw
	p.raw, p.state = "", next
	p.text(raw)
	return true
}

// until gives out text up to a marker, consumes that, and returns which it is; -1 asks for more text.
func (p *Parser) until(markers ...string) (which int) {
	at, which := marker.Find(p.buf, p.last, markers...)
	if at > 0 {
		p.text(p.buf[:at])
	}
	p.buf = p.buf[at:]
	if which >= 0 {
		p.consume(len(markers[which]))
	}
	return which
}

// A word is what prefix says of a text that is still to come.
type word uint8

const (
	differs word = iota
	unsure       // more text is needed
	there
)

// prefix says whether buf begins with m.
func (p *Parser) prefix(m string) word {
	switch {
	case strings.HasPrefix(p.buf, m):
		return there
	case !p.last && strings.HasPrefix(m, p.buf):
		return unsure
	default:
		return differs
	}
}

// head returns what stands before sep, which is to come soon.
func (p *Parser) head(sep string) (string, word) {
	at := strings.Index(p.buf, sep)
	switch {
	case at < 0 && !p.last && len(p.buf) < maxHead+len(sep):
		return "", unsure
	case at < 0 || at > maxHead:
		return "", differs
	}
	return p.buf[:at], there
}

// object consumes a JSON object that names a tool and its arguments. done is what follows one that is whole, text what follows one
// that is no call.
func (p *Parser) object(done, text state) state {
	p.json = object{known: p.known}
	return func(p *Parser) bool {
		if p.buf == "" {
			return p.last && !p.json.announced && p.no(text)
		}
		n, s := p.json.read(p.buf)
		if !p.json.announced {
			p.consume(n)
			if s == bad {
				return p.no(text)
			}
		} else {
			p.buf = p.buf[n:]
		}
		if p.json.ready() {
			p.json.announced = true
			p.begin(p.json.name)
		}
		if p.json.announced {
			p.arguments(p.json.take())
		}
		switch s {
		case bad: // if the call was announced, its arguments are whole, and the rest is text
			p.complete()
			p.state = text
		case whole:
			p.complete()
			p.state = done
		case more:
			return p.buf != ""
		}
		return true
	}
}
