// Package jsonscan reads JSON without reflection.
//
// A Scanner accepts exactly the values of JSON's grammar, up to MaxNesting. Its callers read the few members
// that they know, and skip the others. They leave what a Scanner rejects to encoding/json, which knows
// rare forms and reports errors.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// MaxNesting bounds the nesting of values.
const MaxNesting = 200

// A Scanner reads a text from its beginning. Its methods return false if what comes next is not what they
// read; nothing can be read after that.
type Scanner struct {
	text  []byte
	at    int // index of the next byte
	depth int // of the objects and arrays that are open
}

// New returns a Scanner of a text.
func New(text []byte) Scanner {
	s := Scanner{text: text}
	s.space()
	return s
}

// End reports whether the whole text is read.
func (s *Scanner) End() bool { return s.at == len(s.text) }

// Next returns the first byte of the next value, or 0 at the end.
func (s *Scanner) Next() byte {
	if s.at == len(s.text) {
		return 0
	}
	return s.text[s.at]
}

// take skips the next byte if it is c.
func (s *Scanner) take(c byte) bool {
	if s.Next() != c {
		return false
	}
	s.at++
	return true
}

func (s *Scanner) space() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\n' || s.text[s.at] == '\t' || s.text[s.at] == '\r') {
		s.at++
	}
}

// Object reads an object. For each member it calls member with the name between its quotes, as it is
// written; member reads the value, and returns false to reject it.
func (s *Scanner) Object(member func(name []byte) bool) bool {
	if s.depth == MaxNesting || !s.take('{') {
		return false
	}
	s.depth++
	s.space()
	for first := true; !first || !s.take('}'); first = false {
		start := s.at
		if !s.quoted() {
			return false
		}
		name := s.text[start+1 : s.at-1]
		s.space()
		if !s.take(':') {
			return false
		}
		s.space()
		if !member(name) {
			return false
		}
		if s.take('}') {
			break
		}
		if !s.take(',') {
			return false
		}
		s.space()
	}
	s.depth--
	s.space()
	return true
}

// Array reads an array. It calls element for each element, which element reads; element returns false to
// reject it.
func (s *Scanner) Array(element func() bool) bool {
	if s.depth == MaxNesting || !s.take('[') {
		return false
	}
	s.depth++
	s.space()
	for first := true; !first || !s.take(']'); first = false {
		if !element() {
			return false
		}
		if s.take(']') {
			break
		}
		if !s.take(',') {
			return false
		}
		s.space()
	}
	s.depth--
	s.space()
	return true
}

// Raw reads any value, and returns the part of the text that it is.
func (s *Scanner) Raw() (value []byte, ok bool) {
	start := s.at
	switch s.Next() {
	case '"':
		ok = s.quoted()
	case '{':
		ok = s.Object(func([]byte) bool { return s.Skip() })
	case '[':
		ok = s.Array(s.Skip)
	case 't':
		ok = s.word("true")
	case 'f':
		ok = s.word("false")
	case 'n':
		ok = s.word("null")
	default:
		ok = s.number()
	}
	value = bytes.TrimRight(s.text[start:s.at], " \n\t\r")
	s.space()
	return value[:len(value):len(value)], ok
}

// Skip reads any value.
func (s *Scanner) Skip() bool {
	_, ok := s.Raw()
	return ok
}

// Null reads null, and returns false, without having read anything, if another value comes next.
func (s *Scanner) Null() bool { return s.Next() == 'n' && s.word("null") }

// Numeral reports whether text is a number of JSON.
func Numeral(text []byte) bool {
	s := Scanner{text: text}
	return s.number() && s.End()
}

// Unquote returns the text of a string that a Scanner has accepted; quoted is the part between its
// quotes.
func Unquote(quoted []byte) (text string, ok bool) {
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return string(quoted), true
	}
	ok = json.Unmarshal(slices.Concat([]byte{'"'}, quoted, []byte{'"'}), &text) == nil
	return text, ok
}

func (s *Scanner) word(w string) bool {
	if !bytes.HasPrefix(s.text[s.at:], []byte(w)) {
		return false
	}
	s.at += len(w)
	s.space()
	return true
}

// quoted reads a string, without the white space behind it.
func (s *Scanner) quoted() bool {
	if !s.take('"') {
		return false
	}
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return true
		case c < ' ':
			return false
		case c == '\\' && !s.escape():
			return false
		}
	}
	return false
}

// escape reads the rest of an escape sequence.
func (s *Scanner) escape() bool {
	if s.at == len(s.text) {
		return false
	}
	c := s.text[s.at]
	s.at++
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			c := s.Next()
			if !digit(c) && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return false
			}
			s.at++
		}
		return true
	default:
		return false
	}
}

// number reads a number, without the white space behind it.
func (s *Scanner) number() bool {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return false
	}
	if s.take('.') && !s.digits() {
		return false
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		return s.digits()
	}
	return true
}

// digits reads one or more digits.
func (s *Scanner) digits() bool {
	start := s.at
	for digit(s.Next()) {
		s.at++
	}
	return s.at > start
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// Nested reports whether values in text, which may be invalid JSON, nest deeper than MaxNesting.
func Nested(text []byte) bool {
	depth := 0
	for s := (Scanner{text: text}); !s.End(); {
		switch s.Next() {
		case '"':
			if !s.quoted() {
				return false
			}
			continue
		case '{', '[':
			if depth++; depth > MaxNesting {
				return true
			}
		case '}', ']':
			depth--
		}
		s.at++
	}
	return false
}
