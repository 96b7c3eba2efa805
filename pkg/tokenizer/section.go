package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A section is the text of the vocabulary or of the merges, which are most of a file. Decoding them
// by reflection took most of the time of Load. encoding/json has validated the text before, so
// section checks only the types of values. Strings are parts of the text, not copies.
type section struct {
	text string
	at   int
}

// next returns the first byte of the next value, or the bracket that ends the list. It returns 0 at
// the end.
func (s *section) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch b := s.text[s.at]; b {
		case ' ', '\t', '\r', '\n', ',', ':':
		default:
			return b
		}
	}
	return 0
}

// take consumes the next byte if it is b.
func (s *section) take(b byte) bool {
	if s.next() != b {
		return false
	}
	s.at++
	return true
}

func (s *section) word() (string, error) {
	if s.next() != '"' {
		return "", errors.New("the value is not a string")
	}
	start, escaped := s.at, false
	for s.at++; s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			escaped = true
			s.at++
		}
	}
	s.at++
	if plain := s.text[start+1 : s.at-1]; !escaped && utf8.ValidString(plain) {
		return plain, nil
	}
	var word string
	err := json.Unmarshal([]byte(s.text[start:s.at]), &word)
	return word, err
}

func (s *section) id() (uint32, error) {
	s.next()
	start := s.at
	for s.at < len(s.text) && s.text[s.at] >= '+' && s.text[s.at] != ',' && s.text[s.at] != '}' {
		s.at++
	}
	id, err := strconv.ParseUint(s.text[start:s.at], 10, 32)
	if err != nil {
		return 0, errors.New("the id is not a number of 32 bits")
	}
	return uint32(id), nil
}

// A vocabulary maps tokens to ids. The last of equal tokens wins.
type vocabulary map[string]uint32

// UnmarshalJSON reads an object.
func (v *vocabulary) UnmarshalJSON(data []byte) error {
	s := section{text: string(data)}
	if !s.take('{') {
		if s.text == "null" {
			return nil
		}
		return errors.New("the vocabulary is not an object")
	}
	*v = make(vocabulary, len(data)/24) // slightly more than most files need
	for !s.take('}') {
		token, err := s.word()
		if err != nil {
			return fmt.Errorf("vocabulary: %w", err)
		}
		if (*v)[token], err = s.id(); err != nil {
			return fmt.Errorf("token %.40q: %w", token, err)
		}
	}
	return nil
}

// A mergeList holds the merges, lowest rank first. Files write a merge as a pair, or as a string
// with a space between the two tokens.
type mergeList [][2]string

// UnmarshalJSON reads both forms.
func (l *mergeList) UnmarshalJSON(data []byte) error {
	s := section{text: string(data)}
	if !s.take('[') {
		if s.text == "null" {
			return nil
		}
		return errors.New("the merges are not a list")
	}
	*l = make(mergeList, 0, len(data)/24)
	pairs := s.next() == '['
	for n := 0; !s.take(']'); n++ {
		if !pairs {
			both, err := s.word()
			if err != nil {
				return fmt.Errorf("merge %d: %w", n, err)
			}
			if strings.HasPrefix(both, "#version") {
				continue // old files begin with a version
			}
			left, right, ok := strings.Cut(both, " ")
			if !ok || strings.Contains(right, " ") {
				return fmt.Errorf("merge %d, %q, is not two tokens", n, both)
			}
			*l = append(*l, [2]string{left, right})
			continue
		}
		pair, err := s.words()
		if err != nil {
			return fmt.Errorf("merge %d: %w", n, err)
		}
		if len(pair) != 2 {
			return fmt.Errorf("merge %d has %d tokens", n, len(pair))
		}
		*l = append(*l, [2]string(pair))
	}
	return nil
}

// words reads a list of strings.
func (s *section) words() ([]string, error) {
	if !s.take('[') {
		return nil, errors.New("the value is not a list")
	}
	list := make([]string, 0, 2)
	for !s.take(']') {
		word, err := s.word()
		if err != nil {
			return nil, err
		}
		list = append(list, word)
	}
	return list, nil
}
