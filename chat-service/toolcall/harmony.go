package toolcall

import (
	"regexp"
	"strings"

	"github.com/whence-dev/whence/chat-service/marker"
)

const (
	harmonyStart     = "<|start|>"
	harmonyChannel   = "<|channel|>"
	harmonyConstrain = "<|constrain|>"
	harmonyMessage   = "<|message|>"
	harmonyTools     = "functions."
)

var (
	harmonyMarkers = []string{harmonyStart, harmonyChannel, harmonyConstrain, harmonyMessage, "<|end|>", "<|call|>", "<|return|>"}
	// A body ends at any marker, including markers that are misplaced there.
	harmonyEnds = []string{"<|end|>", "<|call|>", "<|return|>", harmonyStart, harmonyChannel}
)

// Harmony is the format of GPT-OSS: the whole answer consists of channels.
var Harmony = &Format{
	Name: "harmony", Markers: harmonyMarkers, Thinks: true, begin: harmonyBegin, id: longID,
	Answer: harmonyChannel + "final" + harmonyMessage,
	detect: regexp.MustCompile(`<\|channel\|>`),
	around: func(tool string) (string, string) {
		return " to=" + harmonyTools + tool + harmonyChannel + "commentary json" + harmonyMessage, "<|call|>"
	},
}

// harmonyBegin expects a header at the beginning of the answer, after "<|start|>assistant" of the
// prompt. An answer without a header is text.
func harmonyBegin(p *Parser) bool {
	channel, to := p.prefix(harmonyChannel), p.prefix(" to=")
	switch {
	case channel == there || to == there:
		p.state = harmonyHeader
		return true
	case channel == unsure || to == unsure:
		return false
	}
	p.state = harmonyBody(Text)
	return true
}

// harmonyHeader reads up to "<|message|>": the role, the channel and the recipient.
func harmonyHeader(p *Parser) bool {
	header, w := p.head(harmonyMessage)
	switch w {
	case unsure:
		return false
	case there:
		p.buf, p.state = p.buf[len(header)+len(harmonyMessage):], harmonyBody(p.address(header))
	case differs:
		if p.last && begunHeader(p.buf) {
			p.buf = "" // the answer was cut off inside the header, which is not text
			return false
		}
		p.state = harmonyBody(Text)
		p.buf = strings.TrimPrefix(p.buf, harmonyChannel) // a body would end at it immediately
	}
	return true
}

// begunHeader reports whether s is the beginning of a header: a role, a recipient or a channel.
func begunHeader(s string) bool {
	if len(s) > maxHead {
		return false
	}
	for _, first := range []string{"assistant", " to=", harmonyChannel} {
		if strings.HasPrefix(s, first) || strings.HasPrefix(first, s) {
			return true
		}
	}
	return false
}

// address returns the kind of the message after header, and begins a call if the recipient is a
// tool.
func (p *Parser) address(header string) Kind {
	if _, to, ok := strings.Cut(header, "to="+harmonyTools); ok {
		name := to
		if i := strings.IndexAny(to, " \n<"); i >= 0 {
			name = to[:i]
		}
		if p.known(name) {
			p.begin(name)
			return Arguments
		}
	}
	if _, channel, _ := strings.Cut(header, harmonyChannel); strings.HasPrefix(channel, "analysis") {
		return Reasoning
	}
	return Text
}

// harmonyBody reads a message. A header follows between two messages.
func harmonyBody(kind Kind) state {
	return func(p *Parser) bool {
		at, which := marker.Find(p.buf, p.last, harmonyEnds...)
		switch body := p.buf[:at]; {
		case body == "":
		case kind == Text:
			p.text(body)
		default:
			p.out(Event{kind, body})
		}
		if p.buf = p.buf[at:]; which < 0 {
			return false
		}
		if kind == Arguments {
			p.complete()
		}
		p.buf = p.buf[len(harmonyEnds[which]):]
		if harmonyEnds[which] == harmonyChannel { // it belongs to the next header
			p.buf = harmonyChannel + p.buf
		}
		p.state = harmonyBetween
		return true
	}
}

// harmonyBetween follows a message.
func harmonyBetween(p *Parser) bool {
	if p.prefix(harmonyStart) == there {
		p.buf = p.buf[len(harmonyStart):]
	}
	if p.buf == "" || p.prefix(harmonyStart) == unsure {
		return false
	}
	p.state = harmonyHeader
	return true
}
