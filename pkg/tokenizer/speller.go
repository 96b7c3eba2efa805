package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/tokenizer/bpe"
)

// ErrNoSpelling is what a Speller returns for a text that no ids decode to.
var ErrNoSpelling = errors.New("no tokens spell this text")

// A Speller is a Decoder turned around: it finds ids for a text that comes in parts. It is for one goroutine.
//
// What a Decoder that skips special tokens makes of all the ids is the text, byte by byte, or else a call has returned an
// error. They need not be the ids that Encode would give, nor those of the model that wrote the text: a part that is one
// token becomes that token, any other the longest tokens from left to right. So normalization, which rewrites texts before
// they are encoded, does not come into it, and no part waits for the next.
type Speller struct {
	table *spellTable
	dec   *Decoder // what the reader makes of the ids
	owed  []byte   // text that dec holds back; see Decoder for how much that can be
	begun bool     // some text has come
}

// A spellTable is what is between two tokens' ends, by what it spells. It is static.
type spellTable struct {
	ids     map[string]uint32
	longest int         // of the keys, in bytes
	bytes   [256]uint32 // byte tokens, or bpe.None
}

// NewSpeller returns a Speller at the beginning of a text. It fails if the file's decoder puts something between tokens.
func (t *Tokenizer) NewSpeller() (*Speller, error) {
	if t.spelling.gap != "" {
		return nil, fmt.Errorf("tokens are decoded with %q between them: %w", t.spelling.gap, ErrNoSpelling)
	}
	t.spellOnce.Do(func() { t.spell = newSpellTable(t.spelling.tokens) })
	return &Speller{table: t.spell, dec: t.NewDecoder(true)}, nil
}

func newSpellTable(tokens []spelledToken) *spellTable {
	s := &spellTable{ids: make(map[string]uint32, len(tokens))}
	for b := range s.bytes {
		s.bytes[b] = bpe.None
	}
	for id := range tokens {
		switch t := &tokens[id]; {
		case !t.is(known) || t.is(special):
		case t.is(byteOnly):
			if s.bytes[t.value] == bpe.None {
				s.bytes[t.value] = uint32(id)
			}
		case t.text != "":
			if _, taken := s.ids[t.text]; !taken {
				s.ids[t.text] = uint32(id)
				s.longest = max(s.longest, len(t.text))
			}
		}
	}
	return s
}

// append appends ids that spell text within a longer one.
func (s *spellTable) append(ids []uint32, text string) ([]uint32, error) {
next:
	for text != "" {
		for n := min(len(text), s.longest); n > 0; n-- {
			if id, ok := s.ids[text[:n]]; ok {
				ids, text = append(ids, id), text[n:]
				continue next
			}
		}
		r, n := utf8.DecodeRuneInString(text)
		for i := range n {
			id := s.bytes[text[i]]
			if id == bpe.None {
				return nil, fmt.Errorf("character %q: %w", r, ErrNoSpelling)
			}
			ids = append(ids, id)
		}
		text = text[n:]
	}
	return ids, nil
}

// Next returns ids for the next part of the text, which must be whole characters.
func (s *Speller) Next(text string) ([]uint32, error) {
	if text == "" {
		return nil, nil
	}
	ids, err := s.table.append(nil, text)
	if err != nil {
		return nil, err
	}
	if !s.begun {
		if ids, err = s.first(ids, text); err != nil {
			return nil, err
		}
		s.begun = true
	}
	s.owed = append(s.owed, text...)
	certain := s.dec.Next(ids...)
	if !bytes.HasPrefix(s.owed, []byte(certain)) {
		return nil, fmt.Errorf("they decode to another one: %w", ErrNoSpelling)
	}
	s.owed = append(s.owed[:0], s.owed[len(certain):]...)
	return ids, nil
}

// first makes ids spell text where a text begins: decoders of SentencePiece models take a space away there, which
// encoding would have put there.
func (s *Speller) first(ids []uint32, text string) ([]uint32, error) {
	if s.alone(ids) == text {
		return ids, nil
	}
	if space, err := s.table.append(nil, " "); err == nil {
		if ids = append(space, ids...); s.alone(ids) == text {
			return ids, nil
		}
	}
	return nil, fmt.Errorf("where it begins: %w", ErrNoSpelling)
}

func (s *Speller) alone(ids []uint32) string {
	text := s.dec.Next(ids...)
	return text + s.dec.Flush() // and the decoder is as new
}

// Flush ends the text, and reports whether the ids given for it decode to it. The Speller can then begin another one.
func (s *Speller) Flush() error {
	rest := s.dec.Flush()
	good := rest == string(s.owed)
	s.owed, s.begun = s.owed[:0], false
	if !good {
		return fmt.Errorf("where it ends: %w", ErrNoSpelling)
	}
	return nil
}

// Spells returns what id spells within a text, which may be a part of a character. ok is false for special tokens, for ids without
// a token, and where the file's decoder puts something between tokens.
func (t *Tokenizer) Spells(id uint32) (text string, ok bool) {
	if t.spelling.gap != "" || int64(id) >= int64(len(t.spelling.tokens)) {
		return "", false
	}
	token := &t.spelling.tokens[id]
	switch {
	case !token.is(known) || token.is(special):
		return "", false
	case token.is(byteOnly):
		return string([]byte{token.value}), true
	}
	return token.text, true
}
