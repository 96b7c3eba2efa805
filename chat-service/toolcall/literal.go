package toolcall

import (
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/whence-dev/whence/chat-service/marker"
)

// A literal converts one value to JSON while it arrives: a literal of Python or JSON, or of a format
// with quotes of its own and bare keys. A bare word that is neither a number nor a constant becomes
// text, so that no word is lost.
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
	null := word == "None" || word == "null"
	switch {
	case null && takes != TextValue:
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

// opening reports whether a string begins, and the length of its opening quote.
func (l *literal) opening(s string, last bool) (n int, _ word) {
	if l.quote != "" {
		switch {
		case strings.HasPrefix(s, l.quote):
			l.end, l.raw = l.quote, true
			return len(l.quote), there
		case !last && strings.HasPrefix(l.quote, s):
			return 0, unsure
		case s[0] != '"':
			return 0, differs
		}
	}
	for n < len(s) && n < 2 && strings.IndexByte("rRbBuUfF", s[n]) >= 0 {
		n++
	}
	if n == len(s) && !last {
		return 0, unsure
	}
	if n == len(s) || s[n] != '"' && s[n] != '\'' {
		return 0, differs
	}
	l.end, l.raw = s[n:n+1], strings.ContainsAny(s[:n], "rR")
	if triple := strings.Repeat(l.end, 3); strings.HasPrefix(s[n:], triple) {
		l.end = triple
	} else if strings.HasPrefix(triple, s[n:]) && !last {
		return 0, unsure
	}
	return n + len(l.end), there
}

// quoted reads the rest of a string.
func (l *literal) quoted(s string, last bool) (n int, _ progress) {
	ends := []string{l.end, `\`}
	if l.raw {
		ends = ends[:1]
	}
	n, which := marker.Find(s, last, ends...)
	switch {
	case which < 0 || n > 0:
		l.json = appendEscaped(l.json, s[:n])
		return n, more
	case which == 1:
		n, text := unescape(s, last)
		l.json = append(l.json, text...)
		return n, more
	}
	n = len(l.end)
	switch l.ends(s[n:], last) {
	case unsure:
		return 0, more
	case differs:
		l.json = appendEscaped(l.json, l.end)
		return n, more
	default:
		l.json = append(l.json, '"')
		if !l.named {
			return n, l.done()
		}
		l.at, l.key = atSeparator, ""
		return n, more
	}
}

// ends reports whether a string may end before s.
func (l *literal) ends(s string, last bool) word {
	if l.end == l.quote || len(l.end) > 1 || len(l.open) == 0 {
		return there
	}
	rest := strings.TrimLeft(s, space)
	switch top := l.top(); {
	case len(s)-len(rest) > maxWord:
		return there
	case rest == "" && last:
		return there
	case rest == "":
		return unsure
	case l.named:
		return wordIf(rest[0] == top.separator)
	case rest[0] != ',':
		return wordIf(l.closes(rest[0]))
	case top.separator == '=':
		return isKeyword(rest[1:], last)
	default:
		return there
	}
}

func wordIf(is bool) word {
	if is {
		return there
	}
	return differs
}

// isKeyword reports whether s begins with the keyword of an argument, or with the end of the
// arguments.
func isKeyword(s string, last bool) word {
	key := strings.TrimLeft(s, space)
	name := nameEnd(key)
	rest := strings.TrimLeft(key[name:], space)
	switch {
	case len(s)-len(rest) > maxWord:
		return differs
	case rest == "" && !last, rest == "=" && !last:
		return unsure
	case name == 0:
		return wordIf(strings.HasPrefix(rest, ")"))
	default:
		return wordIf(strings.HasPrefix(rest, "=") && !strings.HasPrefix(rest, "=="))
	}
}

// nameEnd returns the length of the name of a tool or an argument at the beginning of s.
func nameEnd(s string) int {
	for i := range len(s) {
		if b := s[i]; b < utf8.RuneSelf && b != '_' && b != '.' && b != '-' && (b < '0' || b > '9') && (b|' ' < 'a' || b|' ' > 'z') {
			return i
		}
	}
	return len(s)
}

// unescape returns the JSON of the escape sequence at the beginning of s, and its length; 0 asks
// for more text. An unknown sequence is text.
func unescape(s string, last bool) (n int, text string) {
	const simple = `nrtbf"\`
	digits := 0
	switch {
	case len(s) == 1 && !last:
		return 0, ""
	case len(s) == 1:
		return 1, `\\`
	case strings.IndexByte(simple, s[1]) >= 0:
		return 2, s[:2]
	case s[1] == '\'' || s[1] == '/':
		return 2, s[1:2]
	case s[1] == '\n': // the line continues
		return 2, ""
	case s[1] == 'x':
		digits = 2
	case s[1] == 'u':
		digits = 4
	case s[1] == 'U':
		digits = 8
	default:
		return 1, `\\`
	}
	if len(s) < 2+digits {
		if !last {
			return 0, ""
		}
		return 1, `\\`
	}
	char, err := strconv.ParseUint(s[2:2+digits], 16, 32)
	switch {
	case err != nil:
		return 1, `\\`
	case digits == 4: // may be one of two surrogates
		return 2 + digits, s[:2+digits]
	default:
		return 2 + digits, escaped(string(rune(char)))
	}
}

// appendEscaped appends s to the text of a JSON string.
func appendEscaped(to []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := range len(s) {
		switch b := s[i]; {
		case b == '"' || b == '\\':
			to = append(to, '\\', b)
		case b == '\n':
			to = append(to, `\n`...)
		case b == '\t':
			to = append(to, `\t`...)
		case b < ' ':
			to = append(to, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		default:
			to = append(to, b) // may be a part of a character
		}
	}
	return to
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
