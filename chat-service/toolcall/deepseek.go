package toolcall

import (
	"regexp"
	"strings"
)

const (
	deepOpen  = "<｜tool▁calls▁begin｜>"
	deepClose = "<｜tool▁calls▁end｜>"
	deepBegin = "<｜tool▁call▁begin｜>"
	deepEnd   = "<｜tool▁call▁end｜>"
	deepSep   = "<｜tool▁sep｜>"
	deepFence = "```"
)

// DeepSeek is the format of DeepSeek V3 and R1.
var DeepSeek = &Format{
	Name: "deepseek", Markers: []string{deepOpen, deepClose, deepBegin, deepEnd, deepSep}, begin: deepText, opens: deepOpens, id: longID,
	detect: regexp.MustCompile(deepOpen),
	around: func(tool string) (string, string) {
		return deepOpen + deepBegin + "function" + deepSep + tool + "\n```json\n", "\n```" + deepEnd + deepClose
	},
}

// deepOpens begin calls: the marker of a call, and that of several calls with the spellings that models
// write where the template shows none.
var deepOpens = []string{
	deepBegin, deepOpen, "<｜tool_calls_begin｜>", "<｜tool calls begin｜>", `<｜tool\_calls\_begin｜>`, "<｜tool▁calls｜>",
}

func deepText(p *Parser) bool {
	switch p.until(deepOpens...) {
	case -1:
		return false
	case 0:
		p.state = deepHead
	default:
		p.state = deepNext
	}
	return true
}

// deepNext expects the beginning of a call, or the end of the calls.
func deepNext(p *Parser) bool {
	p.skipSpace()
	begin, end := p.prefix(deepBegin), p.prefix(deepClose)
	switch {
	case begin == there:
		p.consume(len(deepBegin))
		p.state = deepHead
		return true
	case end == there && strings.TrimSpace(p.raw) != "": // there was no call
		p.consume(len(deepClose))
	case end == there:
		p.raw, p.buf = "", p.buf[len(deepClose):]
	case begin == unsure || end == unsure:
		return false
	}
	return p.backToText(deepText)
}

// deepHead expects "function", the separator, a name and a fence; or, since V3.1, a name and the
// separator. The arguments, or the end of a call without arguments, follow.
func deepHead(p *Parser) bool {
	head, w := p.head("{")
	empty, end := p.head(deepEnd)
	if end == there && (w != there || len(empty) < len(head)) {
		head, w = empty, there
	} else {
		end = differs
	}
	if w != there {
		return w == differs && p.backToText(deepText)
	}
	name, rest, ok := strings.Cut(head, deepSep)
	if name == "function" {
		name, _, _ = strings.Cut(strings.TrimSpace(rest), "\n")
		name, _ = strings.CutSuffix(name, deepFence+"json")
	}
	if name = strings.TrimSpace(name); !ok || !p.known(name) {
		return p.backToText(deepText)
	}
	p.begin(name)
	p.buf, p.state = p.buf[len(head):], p.value(deepTail)
	if end == there {
		p.arguments("{}")
		p.complete()
		p.state = deepTail
	}
	return true
}

// deepTail follows the arguments.
func deepTail(p *Parser) bool {
	p.skipSpace()
	if w := p.prefix(deepFence); w == unsure {
		return false
	} else if w == there {
		p.consume(len(deepFence))
		p.skipSpace()
	}
	switch p.prefix(deepEnd) {
	case unsure:
		return false
	case there:
		p.raw, p.buf, p.state = "", p.buf[len(deepEnd):], deepNext
		return true
	default:
		return p.backToText(deepText)
	}
}
