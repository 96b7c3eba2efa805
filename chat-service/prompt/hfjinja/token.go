package hfjinja

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind int

const (
	name tokenKind = iota
	number
	str // text is the value of the literal
	operator
)

type token struct {
	kind tokenKind
	text string
}

// is reports whether t is the name or operator text.
func (t token) is(kind tokenKind, text string) bool { return t.kind == kind && t.text == text }

var (
	nameForm   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
	numberForm = regexp.MustCompile(`^[0-9][0-9_]*(\.[0-9][0-9_]*)?([eE][+-]?[0-9]+)?`)
	stringForm = regexp.MustCompile(`^(?s:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")`)
)

// operators lists all operators, longer ones first.
var operators = []string{
	"**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[", "]", "(", ")", "{", "}", "<", ">", "=", ".",
	":", "|", ",",
}

// scanToken returns the token at the start of s, which must not be whitespace, and the token's
// length in s.
func scanToken(s string) (token, int, error) {
	if m := nameForm.FindString(s); m != "" {
		return token{name, m}, len(m), nil
	}
	if m := numberForm.FindString(s); m != "" {
		text, err := normalNumber(m)
		return token{number, text}, len(m), err
	}
	if m := stringForm.FindString(s); m != "" {
		text, err := unescape(m[1 : len(m)-1])
		return token{str, text}, len(m), err
	}
	for _, op := range operators {
		if strings.HasPrefix(s, op) {
			return token{operator, op}, len(op), nil
		}
	}
	r, _ := utf8.DecodeRuneInString(s)
	return token{}, 0, fmt.Errorf("unexpected %q", r)
}

// normalNumber writes a number in the library's syntax: digits, with a point if it is a float.
func normalNumber(s string) (string, error) {
	s = strings.ReplaceAll(s, "_", "")
	if !strings.ContainsAny(s, ".eE") {
		_, err := strconv.ParseInt(s, 10, 64)
		return s, err
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return "", err
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s, nil
}

// quote returns s as a string literal of the library's dialect.
func quote(s string) string { return `"` + quoter.Replace(s) + `"` }

var quoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

var simpleEscapes = map[byte]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape decodes the content of a string literal by Python's rules. An unknown escape is kept as
// it is.
func unescape(s string) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, `\`)
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		if text, ok := simpleEscapes[after[0]]; ok {
			b.WriteString(text)
			s = after[1:]
			continue
		}
		digits, base := hexDigits[after[0]], 16
		s = after[1:]
		if digits == 0 {
			base = 8
			for digits < min(3, len(after)) && '0' <= after[digits] && after[digits] <= '7' {
				digits++
			}
			s = after
		}
		if digits == 0 {
			b.WriteByte('\\')
			continue
		}
		if len(s) < digits {
			return "", fmt.Errorf(`short escape \%s`, after)
		}
		r, err := strconv.ParseUint(s[:digits], base, 32)
		if err != nil || !utf8.ValidRune(rune(r)) {
			return "", fmt.Errorf(`escape \%s is not a character`, after[:min(len(after), digits+1)])
		}
		b.WriteRune(rune(r))
		s = s[digits:]
	}
}

var hexDigits = map[byte]int{'x': 2, 'u': 4, 'U': 8}
