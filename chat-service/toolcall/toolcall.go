// Package toolcall parses tool calls in a model's text while the model writes it.
//
// A Parser takes an answer's text in pieces and emits Events: text, calls, and reasoning if its
// Format marks reasoning in the same way. The joined events do not depend on the boundaries of the
// pieces. A call is emitted as soon as its tool and the beginning of its arguments are known. Its
// arguments are emitted as they arrive: they are the model's, byte for byte, and are not validated.
// Complete follows the last byte of the arguments immediately, without waiting for the closing
// marker. If the answer ends within arguments, they stay incomplete. XML is converted to JSON.
//
// Text that only resembles a call, because its form is invalid or the tool does not exist, stays
// text, and nothing is lost. White space between calls, between text and a call, and after the last
// call is dropped.
package toolcall

import (
	"strings"

	"github.com/whence-dev/whence/chat-service/reasoning"
)

// A Kind is the kind of an Event.
type Kind uint8

// The kinds of events.
const (
	Text Kind = iota
	Reasoning
	Begin     // a call begins; Event.Text is the tool's name
	Arguments // arguments of the current call
	Complete  // the arguments of the current call are complete; Event.Text is empty
	ID        // the id that the model gives to the call that begins next
)

// An Event is a piece of an answer.
type Event struct {
	Kind Kind
	Text string
}

// maxHead bounds the text that is held back before it is known to be a call, in bytes. A longer
// head is text.
const maxHead = 4096

// A Parser parses one answer. It is not safe for concurrent use.
type Parser struct {
	// Static.
	known  func(tool string) bool
	takes  func(tool string, path ...string) Value
	hidden *strings.Replacer // removes special tokens, which clients must not see
	out    func(Event)

	marks []string // beginnings of calls, which are noticed in text

	state  state
	buf    string // text that state has not consumed
	last   bool   // buf is the end of the answer
	raw    string // consumed text of a possible call
	space  string // white space at the end of the text
	wide   bool   // the white space was too long to be held back
	called bool   // there is no text after the last call
	json   object
	ids    map[string]bool     // the ids that the model has given to calls
	list   bool                // the calls stand in a JSON list
	spoke  [Reasoning + 1]bool // there has been a message with text, or with reasoning

	tail   string   // the end of the text, which may be the beginning of a mark
	unread []string // marks in the text
}

// A state consumes from the front of p.buf. It returns false if it needs more text, and true if
// p.state should be called again.
type state func(p *Parser) bool

// New returns a Parser for answers in format f. known reports whether a tool exists, and takes
// returns the type of a parameter. hidden lists the model's special tokens that f uses and that
// must not appear in text. out gets the events.
func New(f *Format, known func(tool string) bool, takes func(tool string, path ...string) Value, hidden []string, out func(Event)) *Parser {
	var pairs []string
	for _, token := range hidden {
		pairs = append(pairs, token, "")
	}
	return &Parser{known: known, takes: takes, hidden: strings.NewReplacer(pairs...), out: out, marks: marks, state: f.begin}
}

// Next takes the next piece of the answer.
func (p *Parser) Next(piece string) {
	p.buf += piece
	p.run()
}

// End ends the answer.
func (p *Parser) End() {
	p.last = true
	p.run()
	p.text(p.raw + p.buf)
	if p.space != "" && !p.called {
		p.out(Event{Text, p.space})
	}
	p.raw, p.buf, p.space = "", "", ""
}

func (p *Parser) run() {
	for more := true; more; {
		more = p.state(p)
	}
}

const space = " \t\r\n"

// text emits text, except for trailing white space.
func (p *Parser) text(s string) {
	p.watch(s)
	s = p.space + p.hidden.Replace(s)
	trimmed := strings.TrimRight(s, space)
	p.wide = len(s)-len(trimmed) > maxHead || p.wide && trimmed == ""
	if p.wide { // no call is expected after so much white space
		trimmed = s
	}
	p.space = s[len(trimmed):]
	if trimmed != "" {
		p.called = false
		p.out(Event{Text, trimmed})
	}
}

// tool returns the tool that a model calls by name, or "". Some models put a tool into a namespace,
// which may be its own name, and some call a method of the tool.
func (p *Parser) tool(name string) string {
	for _, tool := range []string{name, strings.TrimPrefix(name, "functions."), strings.TrimSuffix(name, ".call")} {
		if p.known(tool) {
			return tool
		}
	}
	if space, tool, _ := strings.Cut(name, "."); space == tool && p.known(tool) {
		return tool
	}
	return ""
}

// begin emits the beginning of a call.
func (p *Parser) begin(tool string) {
	p.raw, p.space, p.called = "", "", true
	p.out(Event{Begin, tool})
}

// identify emits the id that the model gives to the next call. The second call with the same id gets
// another id.
func (p *Parser) identify(id string) {
	if !p.ids[id] {
		if p.ids == nil {
			p.ids = map[string]bool{}
		}
		p.ids[id] = true
		p.out(Event{ID, id})
	}
}

// arguments emits a piece of arguments.
func (p *Parser) arguments(s string) {
	if s != "" {
		p.out(Event{Arguments, s})
	}
}

// complete emits that the arguments of the current call are complete.
func (p *Parser) complete() { p.out(Event{Kind: Complete}) }

// consume moves n bytes from buf to raw.
func (p *Parser) consume(n int) {
	p.raw += p.buf[:n]
	p.buf = p.buf[n:]
}

// skipSpace consumes white space, up to maxHead in a possible call because a model can write white
// space without end. It reports whether buf still has text.
func (p *Parser) skipSpace() bool {
	n := len(p.buf) - len(strings.TrimLeft(p.buf, space))
	p.consume(max(0, min(n, maxHead-len(p.raw))))
	return p.buf != ""
}

// backToText turns a possible call back into text, and continues with next.
func (p *Parser) backToText(next state) bool {
	raw := p.raw
	p.raw, p.state = "", next
	p.text(raw)
	return true
}

// until emits the text before the first of markers, consumes the marker, and returns its index; -1
// asks for more text.
func (p *Parser) until(markers ...string) (which int) {
	at, which := reasoning.FindMarker(p.buf, p.last, markers...)
	if at > 0 {
		p.text(p.buf[:at])
	}
	p.buf = p.buf[at:]
	if which >= 0 {
		p.consume(len(markers[which]))
	}
	return which
}

// A word is the result of a comparison with text that may be incomplete.
type word uint8

const (
	differs word = iota
	unsure       // more text is needed
	there
)

// prefix reports whether buf begins with m.
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

// oneOf returns the longest of markers with which buf begins. It is unsure while a longer one may
// follow.
func (p *Parser) oneOf(markers []string) (which int, _ word) {
	which = -1
	for i, m := range markers {
		switch p.prefix(m) {
		case unsure:
			return -1, unsure
		case there:
			if which < 0 || len(m) > len(markers[which]) {
				which = i
			}
		case differs:
		}
	}
	if which < 0 {
		return -1, differs
	}
	return which, there
}

// head returns the text before sep, which must be within maxHead bytes.
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

// object consumes a JSON object with a tool's name and arguments. The parser continues with done
// after a call, and with text otherwise.
func (p *Parser) object(done, text state) state { return p.objectOf(object{}, done, text) }

// objectOf is object for an object of another form.
func (p *Parser) objectOf(of object, done, text state) state {
	p.json = of
	p.json.tool = p.tool
	return func(p *Parser) bool {
		if p.buf == "" {
			return p.last && !p.json.announced && p.backToText(text)
		}
		n, s := p.json.read(p.buf)
		if !p.json.announced {
			p.consume(n)
			if s == bad {
				return p.backToText(text)
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
		case bad: // if the call was announced, its arguments are complete, and the rest is text
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
