package toolcall

import (
	"slices"
	"strings"
)

// SpecialToken stands for a special token that the parser does not know.
const SpecialToken = "special token"

// marks are the beginnings of calls of all formats that prose hardly has.
var marks = func() (marks []string) {
	for _, f := range formats {
		for _, m := range f.opens {
			if strings.ContainsAny(m[:1], "<[]") && !strings.HasSuffix(m, " ") && !slices.Contains(marks, m) {
				marks = append(marks, m)
			}
		}
	}
	return marks
}()

// maxMark is at least the length of the longest mark, in bytes.
const maxMark = 64

// Label returns a text that Unread returned, or SpecialToken for any other text.
func Label(text string) string {
	if slices.Contains(marks, text) {
		return text
	}
	return SpecialToken
}

// Unread returns the markers in the answer's text that begin a call, each once: markers of other
// formats, and those of the parser's own format that no valid call follows.
func (p *Parser) Unread() []string { return p.unread }

// watch finds marks in a piece of text.
func (p *Parser) watch(s string) {
	s = p.tail + s
	p.tail = ""
	if !strings.ContainsAny(s, "<[]") {
		return
	}
	for _, m := range p.marks {
		if strings.Contains(s, m) && !slices.Contains(p.unread, m) {
			p.unread = append(p.unread, m)
		}
	}
	p.tail = s[max(0, len(s)-maxMark):]
}
