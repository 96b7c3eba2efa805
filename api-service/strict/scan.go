package strict

import (
	"bytes"
	"encoding/json"
	"strconv"
	"sync"
	"unicode/utf8"
)

// MaxNesting bounds the nesting of the values of a body.
const MaxNesting = 200

// A scanner splits JSON into raw values without reflection. encoding/json parses what a scanner
// rejects, and reports the error.
type scanner struct {
	text []byte
	at   int // index of the next byte
}

// members returns the members of an object, which are parts of text. twice is the name of a
// repeated member, if there is one: JSON parsers disagree which of the two counts.
func members(text []byte) (fields map[string]json.RawMessage, twice *string, ok bool) {
	s := scanner{text: text}
	s.space()
	fields = spare.Get().(map[string]json.RawMessage) //nolint:forcetypeassert // the pool has nothing else
	ok = s.object(0, func(name string, value []byte) {
		if _, known := fields[name]; known && twice == nil {
			twice = &name
		}
		fields[name] = value
	})
	s.space()
	return fields, twice, ok && s.at == len(text)
}

// spare has the maps of Recycle.
var spare = sync.Pool{New: func() any { return map[string]json.RawMessage{} }}

// maxSpare bounds the size of a map in spare.
const maxSpare = 64

// Recycle keeps a map of Fields or Object for a later call. The caller must not use it any more; it may
// use its values.
func Recycle(fields map[string]json.RawMessage) {
	if len(fields) <= maxSpare {
		clear(fields)
		spare.Put(fields)
	}
}

// nested reports whether values in text, which may be invalid JSON, nest deeper than MaxNesting.
func nested(text []byte) bool {
	depth := 0
	for s := (scanner{text: text}); s.at < len(text); {
		switch s.next() {
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

// elements returns the elements of an array, which are parts of text.
func elements(text []byte) (items []json.RawMessage, ok bool) {
	s := scanner{text: text}
	s.space()
	items = []json.RawMessage{}
	ok = s.array(0, func(value []byte) { items = append(items, value) })
	s.space()
	return items, ok && s.at == len(text)
}

// identifiers returns the elements of an array of token ids.
func identifiers(text []byte) (ids []uint32, ok bool) {
	s := scanner{text: text}
	ids = make([]uint32, 0, bytes.Count(text, []byte{','})+1)
	valid := true
	ok = s.array(0, func(value []byte) {
		id, err := strconv.ParseUint(string(value), 10, 31)
		valid = valid && err == nil
		ids = append(ids, uint32(id))
	})
	return ids, ok && valid && s.at == len(text)
}

// next returns the next byte, or 0 at the end.
func (s *scanner) next() byte {
	if s.at == len(s.text) {
		return 0
	}
	return s.text[s.at]
}

// take skips the next byte if it is c.
func (s *scanner) take(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) space() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\n' || s.text[s.at] == '\t' || s.text[s.at] == '\r') {
		s.at++
	}
}

// object skips an object, and calls member, which may be nil, with each of its members.
func (s *scanner) object(depth int, member func(name string, value []byte)) bool {
	if !s.take('{') {
		return false
	}
	s.space()
	if s.take('}') {
		return true
	}
	for {
		start := s.at
		if !s.quoted() {
			return false
		}
		name := s.text[start:s.at]
		s.space()
		if !s.take(':') {
			return false
		}
		value, ok := s.value(depth)
		if !ok {
			return false
		}
		if member != nil {
			text, ok := unquote(name)
			if !ok {
				return false
			}
			member(text, value)
		}
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
		s.space()
	}
}

// array skips an array, and calls element, which may be nil, with each of its elements.
func (s *scanner) array(depth int, element func(value []byte)) bool {
	if !s.take('[') {
		return false
	}
	s.space()
	if s.take(']') {
		return true
	}
	for {
		value, ok := s.value(depth)
		if !ok {
			return false
		}
		if element != nil {
			element(value)
		}
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// value skips a value and the white space around it, and returns the value.
func (s *scanner) value(depth int) (value []byte, ok bool) {
	s.space()
	start := s.at
	switch s.next() {
	case '"':
		ok = s.quoted()
	case '{':
		ok = depth < MaxNesting-1 && s.object(depth+1, nil)
	case '[':
		ok = depth < MaxNesting-1 && s.array(depth+1, nil)
	case 't':
		ok = s.word("true")
	case 'f':
		ok = s.word("false")
	case 'n':
		ok = s.word("null")
	default:
		ok = s.number()
	}
	value = s.text[start:s.at:s.at]
	s.space()
	return value, ok
}

func (s *scanner) word(w string) bool {
	if !bytes.HasPrefix(s.text[s.at:], []byte(w)) {
		return false
	}
	s.at += len(w)
	return true
}

// quoted skips a string.
func (s *scanner) quoted() bool {
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

// escape skips the rest of an escape sequence.
func (s *scanner) escape() bool {
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
			c := s.next()
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

// number skips a number.
func (s *scanner) number() bool {
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

// digits skips one or more digits.
func (s *scanner) digits() bool {
	start := s.at
	for digit(s.next()) {
		s.at++
	}
	return s.at > start
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// unquote returns the text of a string that a scanner has accepted.
func unquote(quoted []byte) (text string, ok bool) {
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return string(quoted[1 : len(quoted)-1]), true
	}
	ok = json.Unmarshal(quoted, &text) == nil
	return text, ok
}

// numeral returns the text of a number, or "" if raw is not a number.
func numeral(raw []byte) string {
	s := scanner{text: raw}
	if !s.number() || s.at < len(raw) {
		return ""
	}
	return string(raw)
}
