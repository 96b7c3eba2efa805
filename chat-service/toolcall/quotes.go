package toolcall

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/whence-dev/whence/chat-service/reasoning"
)

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
	n, which := reasoning.FindMarker(s, last, ends...)
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
