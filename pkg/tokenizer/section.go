package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// score reads a number as the Rust library's JSON parser does, which rounds twice: the digits to a
// float64, and the quotient by a power of ten. Scores decide between equal sums.
func (s *section) score() (float64, error) {
	s.next()
	start := s.at
	for s.at < len(s.text) && s.text[s.at] != ']' && s.text[s.at] != ',' {
		s.at++
	}
	text := strings.TrimSpace(s.text[start:s.at])
	exact, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, errors.New("the score is not a number")
	}
	digits, power := uint64(0), 0
	mantissa, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(text, "-")), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	for i, b := range []byte(whole + fraction) {
		if digits > (math.MaxUint64-uint64(b-'0'))/10 {
			return exact, nil // that many digits are never written
		}
		if digits = 10*digits + uint64(b-'0'); i >= len(whole) {
			power--
		}
	}
	if exponent != "" {
		n, err := strconv.Atoi(exponent)
		if err != nil {
			return exact, nil //nolint:nilerr // the number is 0 or infinite
		}
		power += n
	}
	if power < -300 || power > 300 {
		return exact, nil
	}
	score := float64(digits) * math.Pow10(max(power, 0)) / math.Pow10(max(-power, 0))
	return math.Copysign(score, exact), nil
}

// A vocabulary has the tokens of a model.
type vocabulary struct {
	ids    map[string]uint32 // the last of equal tokens wins
	scored []scoredToken     // by id, in a vocabulary that lists its tokens with scores
}

type scoredToken struct {
	text  string
	score float64
}

// UnmarshalJSON reads an object of ids, or a list of tokens with scores.
func (v *vocabulary) UnmarshalJSON(data []byte) error {
	s := section{text: string(data)}
	switch {
	case s.take('{'):
		v.ids = make(map[string]uint32, len(data)/24) // slightly more than most files need
		for !s.take('}') {
			token, err := s.word()
			if err != nil {
				return fmt.Errorf("vocabulary: %w", err)
			}
			if v.ids[token], err = s.id(); err != nil {
				return fmt.Errorf("token %.40q: %w", token, err)
			}
		}
		return nil
	case s.take('['):
		return v.list(&s)
	case s.text == "null":
		return nil
	}
	return errors.New("the vocabulary is neither an object nor a list")
}

func (v *vocabulary) list(s *section) error {
	v.ids, v.scored = make(map[string]uint32, len(s.text)/32), []scoredToken{}
	for id := 0; !s.take(']'); id++ {
		if id > maxID || !s.take('[') {
			return fmt.Errorf("token %d of the vocabulary is not a token and a score", id)
		}
		token, err := s.word()
		if err != nil {
			return fmt.Errorf("token %d of the vocabulary: %w", id, err)
		}
		score, err := s.score()
		if err != nil {
			return fmt.Errorf("token %.40q: %w", token, err)
		}
		if !s.take(']') {
			return fmt.Errorf("token %.40q has more than a score", token)
		}
		v.ids[token] = uint32(id)
		v.scored = append(v.scored, scoredToken{token, score})
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
