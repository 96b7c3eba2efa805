package jsonscan

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// The following methods read the value of a field as encoding/json does: null leaves a bool, a number, or a
// string as it is. They reject some values that encoding/json takes.

// Bool reads true or false.
func (s *Scanner) Bool(into *bool) bool {
	if s.Null() {
		return true
	}
	*into = s.Next() == 't'
	if *into {
		return s.word("true")
	}
	return s.word("false")
}

// Uint32 reads a number without a sign, a fraction and an exponent.
func (s *Scanner) Uint32(into *uint32) bool {
	n := int(*into)
	if s.Next() == '-' || !s.Int(&n) || int64(n) > 1<<32-1 {
		return false
	}
	*into = uint32(n) //nolint:gosec // it has been compared
	return true
}

// Int reads a number without a fraction and an exponent.
func (s *Scanner) Int(into *int) bool {
	if s.Null() {
		return true
	}
	start := s.at
	if !s.number() {
		return false
	}
	n, err := strconv.Atoi(string(s.text[start:s.at])) // the string is not allocated
	*into = n
	s.space()
	return err == nil
}

// Uint32s reads an array of numbers. null makes it nil.
func (s *Scanner) Uint32s(into *[]uint32) bool {
	*into = nil
	if s.Null() {
		return true
	}
	all := []uint32{}
	ok := s.Array(func() bool {
		var n uint32
		ok := s.Next() != 'n' && s.Uint32(&n)
		all = append(all, n)
		return ok
	})
	*into = all
	return ok
}

// String reads a string. Bytes that are not UTF-8 become U+FFFD.
func (s *Scanner) String(into *string) bool {
	if s.Null() {
		return true
	}
	start := s.at
	if !s.quoted() {
		return false
	}
	text, ok := Unquote(s.text[start+1 : s.at-1])
	*into = text
	s.space()
	return ok
}

// Pointer reads null, which makes the pointer nil, or a value, which read reads into its target.
func Pointer[T any](s *Scanner, into **T, read func(*T) bool) bool {
	if s.Null() {
		*into = nil
		return true
	}
	if *into == nil {
		*into = new(T)
	}
	return read(*into)
}

// Value reads any value with encoding/json.
func (s *Scanner) Value(into any) bool {
	raw, ok := s.Raw()
	return ok && json.Unmarshal(raw, into) == nil
}

// Other skips the value of a member that is none of the caller's fields. It rejects names that encoding/json
// might match with a field of another spelling: it ignores the case of letters.
func (s *Scanner) Other(name []byte) bool {
	for _, c := range name {
		if c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf || c == '\\' {
			return false
		}
	}
	return s.Skip()
}
