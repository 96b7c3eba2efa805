package toolcall

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"
)

// A literal converts one value to JSON while it arrives: a literal of Python or JSON, or of a format
// with quotes of its own and bare keys. It keeps every bare word: one
// that is no number and no constant becomes text.
//
// Models put quotes into quoted text without escaping them. So a quote ends a string only where a
// string may end.
type literal struct {
	quote string                 // the quote around text without escapes; "" for Python's strings
	takes func(key string) Value // returns the type of a member of the outermost object

	at    spot
	open  []bracket
	key   string // the current key of the outermost object
	end   string // the quote that ends the current string
	raw   bool   // the current string has no escapes
	named bool   // the current string is a key
	depth int    // of brackets in the current bare word
	loose bool   // the text is no literal of Python or JSON
	json  []byte // not emitted yet
}

// A spot is the next expected part of a literal.
type spot uint8

const (
	atEntry     spot = iota // a value
	atMember                // a key, an item or the end
	atSeparator             // the separator between key and value
	atNext                  // a comma or the end
	inQuotes                // the rest of a string
	inBare                  // the rest of a bare word that is text
)

// A bracket is an open bracket.
type bracket struct {
	end       byte
	separator byte // between key and value; 0 in a list
	members   int
}

const (
	maxWord  = 256 // the longest bare word that can be a number, a constant or a key, in bytes
	maxDepth = 500 // of brackets
)

// enter opens a bracket.
func (l *literal) enter(end, separator byte) {
	l.open = append(l.open, bracket{end: end, separator: separator})
	l.at = atMember
	if separator != 0 {
		l.json = append(l.json, '{')
	} else {
		l.json = append(l.json, '[')
	}
}

// leave closes the innermost bracket.
func (l *literal) leave() {
	if l.top().separator != 0 {
		l.json = append(l.json, '}')
	} else {
		l.json = append(l.json, ']')
	}
	l.open = l.open[:len(l.open)-1]
	l.at = atNext
}

func (l *literal) top() *bracket { return &l.open[len(l.open)-1] }

// take returns the JSON that can be emitted.
func (l *literal) take() string {
	s := string(l.json)
	l.json = l.json[:0]
	return s
}

// stop ends the value at an error, so that its JSON is complete.
func (l *literal) stop() {
	switch l.at {
	case atSeparator:
		l.json = append(l.json, ": null"...)
	case atEntry:
		l.json = append(l.json, "null"...)
	default:
	}
	for len(l.open) > 0 {
		l.leave()
	}
}

// read consumes n bytes of s. last means that no text follows s.
func (l *literal) read(s string, last bool) (n int, _ progress) {
	for {
		m, p := l.step(s[n:], last)
		if n += m; p != more || m == 0 {
			return n, p
		}
	}
}

// step consumes at least one byte, unless it needs more text or the value ends.
func (l *literal) step(s string, last bool) (n int, _ progress) {
	switch l.at {
	case inQuotes:
		return l.quoted(s, last)
	case inBare:
		return l.bare(s)
	default:
	}
	if n = len(s) - len(strings.TrimLeft(s, space)); n > 0 || s == "" {
		return n, more
	}
	switch l.at {
	case atMember:
		return l.member(s, last)
	case atSeparator:
		if s[0] != l.top().separator {
			return 0, bad
		}
		l.json = append(l.json, ": "...)
		l.at = atEntry
		return 1, more
	case atNext:
		return l.next(s[0])
	default:
		return l.entry(s, last)
	}
}

// done returns the progress after an entry.
func (l *literal) done() progress {
	if l.at = atNext; len(l.open) == 0 {
		return whole
	}
	return more
}

// next reads a comma or a closing bracket. A bracket also closes the open ones within it.
func (l *literal) next(b byte) (n int, _ progress) {
	switch {
	case b == ',':
		l.at = atMember
		return 1, more
	case !l.closes(b):
		return 0, bad
	}
	for l.top().end != b {
		l.loose = true
		l.leave()
	}
	l.leave()
	return 1, l.done()
}

func (l *literal) closes(b byte) bool {
	return slices.ContainsFunc(l.open, func(open bracket) bool { return open.end == b })
}

// member reads a key, an item or a closing bracket.
func (l *literal) member(s string, last bool) (n int, _ progress) {
	if s[0] == ',' || l.closes(s[0]) {
		return l.next(s[0])
	}
	separator := l.top().separator
	if separator == 0 {
		l.separate()
		return l.entry(s, last)
	}
	switch n, w := l.opening(s, last); w {
	case unsure:
		return 0, more
	case there:
		l.separate()
		l.json = append(l.json, '"')
		l.at, l.named = inQuotes, true
		return n, more
	default:
	}
	at := strings.IndexAny(s, string(separator)+",()[]{}")
	switch {
	case at < 0 && last: // the key is cut off
		return len(s), more
	case at < 0 && len(s) <= maxWord:
		return 0, more
	case at < 0 || at > maxWord || s[at] != separator:
		return 0, bad
	}
	l.separate()
	l.loose = l.loose || separator == ':'
	key := strings.TrimRight(s[:at], space)
	if len(l.open) == 1 {
		l.key = key
	}
	l.json = append(append(l.json, '"'), escaped(key)+`": `...)
	l.at = atEntry
	return at + 1, more
}

// separate begins a member of the innermost bracket.
func (l *literal) separate() {
	top := l.top()
	if top.members++; top.members > 1 {
		l.json = append(l.json, ", "...)
	}
	l.at = atEntry
}

// entry begins a value.
func (l *literal) entry(s string, last bool) (n int, _ progress) {
	switch b := s[0]; {
	case strings.IndexByte("{[(", b) >= 0 && len(l.open) == maxDepth:
		return 0, bad
	case b == '{':
		l.enter('}', ':')
		return 1, more
	case b == '[':
		l.enter(']', 0)
		return 1, more
	case b == '(':
		l.enter(')', 0)
		return 1, more
	case l.closes(b) || b == ',' && len(l.open) > 0:
		l.loose = true
		l.json = append(l.json, "null"...)
		return l.next(b)
	}
	switch n, w := l.opening(s, last); w {
	case unsure:
		return 0, more
	case there:
		l.json = append(l.json, '"')
		l.at, l.named = inQuotes, false
		return n, more
	default:
	}
	depth := 0
	n, ended := wordEnd(s, &depth)
	switch {
	case n == 0:
		return 0, bad
	case n > maxWord:
		l.json = append(l.json, '"')
		l.at, l.depth, l.loose = inBare, 0, true
		return l.bare(s)
	case !ended && !last:
		return 0, more
	}
	l.json = append(l.json, l.constant(strings.TrimRight(s[:n], space))...)
	return n, l.done()
}

// wordEnd returns the length of the bare word at the beginning of s, or of its rest: it ends at a
// comma, or at a bracket that it has not opened. depth is the number of its open brackets.
func wordEnd(s string, depth *int) (n int, ended bool) {
	for i := range len(s) {
		switch s[i] {
		case '(', '[', '{':
			*depth++
		case ')', ']', '}':
			*depth--
		}
		if *depth < 0 || *depth == 0 && s[i] == ',' {
			return i, true
		}
	}
	return len(s), false
}

// bare reads the rest of a bare word that is text.
func (l *literal) bare(s string) (n int, _ progress) {
	n, ended := wordEnd(s, &l.depth)
	l.json = appendEscaped(l.json, s[:n])
	if !ended {
		return n, more
	}
	l.json = append(l.json, '"')
	if l.done() == whole {
		return n, whole
	}
	m, p := l.next(s[n])
	return n + m, p
}

// constant returns the JSON of a bare word.
func (l *literal) constant(word string) string {
	takes := AnyValue
	if len(l.open) == 1 && l.top().separator != 0 && l.takes != nil {
		takes = l.takes(l.key)
	}
	switch {
	case word == "None", word == "null" && takes != TextValue:
		return "null"
	case takes == TextValue || takes == TextOrNull:
	case word == "True" || word == "true":
		return "true"
	case word == "False" || word == "false":
		return "false"
	default:
		if n := number(word); n != "" {
			return n
		}
	}
	l.loose = true
	return `"` + escaped(word) + `"`
}

// number returns the JSON of a number of Python, or "".
func number(word string) string {
	if json.Valid([]byte(word)) && (word[0] == '-' || word[0] >= '0' && word[0] <= '9') {
		return word
	}
	digits, sign := strings.TrimPrefix(word, "+"), ""
	if strings.HasPrefix(digits, "-") {
		digits, sign = digits[1:], "-"
	}
	digits = strings.ReplaceAll(digits, "_", "")
	if digits == "" || digits[0] != '.' && (digits[0] < '0' || digits[0] > '9') {
		return ""
	}
	if len(digits) > 1 && digits[1] > '9' { // 0x, 0o or 0b
		if n, ok := new(big.Int).SetString(digits, 0); ok {
			return sign + n.String()
		}
	}
	digits = strings.TrimLeft(digits, "0")
	if digits == "" || digits[0] < '0' || digits[0] > '9' {
		digits = "0" + digits
	}
	whole, rest, point := strings.Cut(digits, ".")
	if point && (rest == "" || rest[0] < '0' || rest[0] > '9') {
		digits = whole + ".0" + rest
	}
	if !json.Valid([]byte(sign + digits)) {
		return ""
	}
	return sign + digits
}

// literal emits the JSON of a literal as arguments. The parser continues with done after the
// literal, and with text at an error.
func (p *Parser) literal(l *literal, done, text state) state {
	return func(p *Parser) bool {
		n, s := l.read(p.buf, p.last)
		p.buf = p.buf[n:]
		switch s {
		case bad:
			l.stop()
			p.state = text
		case whole:
			p.state = done
		case more:
		}
		if p.arguments(l.take()); s == more {
			return false
		}
		p.complete()
		return true
	}
}
