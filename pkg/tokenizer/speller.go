package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrNoSpelling is returned by a Speller for a text that no ids decode to.
var ErrNoSpelling = errors.New("no tokens spell this text")

// A Speller is the inverse of a Decoder: it finds ids for a text that arrives in parts. Only one
// goroutine may use it.
//
// A Decoder that skips special tokens decodes the ids to exactly the text, byte by byte, unless a
// call has returned an error. The ids need not equal those of Encode, nor those of the model that
// wrote the text: a part that is one token becomes that token, any other part becomes the longest
// tokens from left to right. So normalization, which rewrites texts before encoding, has no effect,
// and no part waits for the next part.
type Speller struct {
	table *spellTable
	dec   *Decoder // decodes the ids, as the reader will
	owed  []byte   // text that dec holds back; bounded as in Decoder
	begun bool     // Next has got some text
}

// A spellTable maps text to tokens, for tokens that begin and end with whole characters. It is
// immutable.
type spellTable struct {
	ids     map[string]uint32
	longest int         // of the keys, in bytes
	bytes   [256]uint32 // byte tokens, or noToken
}

// NewSpeller returns a Speller at the beginning of a text. It fails if the file's decoder inserts
// text between tokens.
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
		s.bytes[b] = noToken
	}
	for id := range tokens {
		switch t := &tokens[id]; {
		case !t.is(known) || t.is(special):
		case t.is(byteOnly):
			if s.bytes[t.value] == noToken {
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

// append appends ids for text that is not at the beginning of a text.
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
			if id == noToken {
				return nil, fmt.Errorf("character %q: %w", r, ErrNoSpelling)
			}
			ids = append(ids, id)
		}
		text = text[n:]
	}
	return ids, nil
}

// Next returns ids for the next part of the text, which must consist of whole characters.
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
		return nil, fmt.Errorf("the ids of a part decode to another text: %w", ErrNoSpelling)
	}
	s.owed = append(s.owed[:0], s.owed[len(certain):]...)
	return ids, nil
}

// first corrects ids for text at the beginning, where decoders of SentencePiece models remove a
// space that encoding would have added.
func (s *Speller) first(ids []uint32, text string) ([]uint32, error) {
	if s.alone(ids) == text {
		return ids, nil
	}
	if space, err := s.table.append(nil, " "); err == nil {
		if ids = append(space, ids...); s.alone(ids) == text {
			return ids, nil
		}
	}
	return nil, fmt.Errorf("at the beginning of the text: %w", ErrNoSpelling)
}

func (s *Speller) alone(ids []uint32) string {
	text := s.dec.Next(ids...)
	return text + s.dec.Flush() // Flush resets the decoder
}

// Flush ends the text, and returns an error if the ids do not decode to the text. The Speller can
// then begin another text.
func (s *Speller) Flush() error {
	rest := s.dec.Flush()
	good := rest == string(s.owed)
	s.owed, s.begun = s.owed[:0], false
	if !good {
		return fmt.Errorf("at the end of the text: %w", ErrNoSpelling)
	}
	return nil
}

// Spells returns the text of id within a text, which may be a part of a character. ok is false for
// special tokens, for ids without a token, and if the file's decoder inserts text between tokens.
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
