package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A wordPiece is BERT's model: a word becomes the longest tokens from left to right, or one unknown
// token if there are none for a part of it. It is immutable.
type wordPiece struct {
	ids             map[string]uint32
	begins, follows lexicon // tokens at the beginning of a word, and behind it
	unknown         uint32
	longest         int // characters of a word; a longer one is unknown
	cache           *wordCache
}

func newWordPiece(f *modelFile) (*wordPiece, error) {
	unknown, ok := f.Vocab.ids[f.UnkToken]
	switch {
	case !ok:
		return nil, fmt.Errorf("unk_token %q is not in the vocabulary", f.UnkToken)
	case f.MaxChars == nil || *f.MaxChars < 0:
		return nil, errors.New("no max_input_chars_per_word")
	}
	var begins, follows []lexeme
	for text, id := range f.Vocab.ids {
		if len(text) > maxPiece {
			return nil, fmt.Errorf("token %.40q has %d bytes; at most %d are allowed", text, len(text), maxPiece)
		}
		if text == "" {
			continue
		}
		begins = append(begins, lexeme{text: text, id: id})
		if rest, ok := strings.CutPrefix(text, f.SubwordPrefix); ok && rest != "" {
			follows = append(follows, lexeme{text: rest, id: id})
		}
	}
	return &wordPiece{
		ids: f.Vocab.ids, begins: newLexicon(begins), follows: newLexicon(follows), unknown: unknown,
		longest: *f.MaxChars, cache: newWordCache(),
	}, nil
}

// ID returns the id of a token.
func (w *wordPiece) ID(token string) (uint32, bool) {
	id, ok := w.ids[token]
	return id, ok
}

// Encode appends the ids of word.
func (w *wordPiece) Encode(ids []uint32, word string, _ *bpeMerger) []uint32 {
	slot := w.cache.Slot(word)
	if known, ok := slot.Find(word); ok {
		return append(ids, known...)
	}
	n := len(ids)
	ids = w.split(ids, word)
	slot.Store(word, ids[n:])
	return ids
}

func (w *wordPiece) split(ids []uint32, word string) []uint32 {
	n := len(ids)
	if utf8.RuneCountInString(word) > w.longest {
		return append(ids, w.unknown)
	}
	for from := &w.begins; word != ""; from = &w.follows {
		var longest *lexeme
		from.prefixes(word, func(t *lexeme) { longest = t })
		if longest == nil {
			return append(ids[:n], w.unknown)
		}
		ids, word = append(ids, longest.id), word[len(longest.text):]
	}
	return ids
}

// wordPieceFile has the options of the decoder WordPiece.
type wordPieceFile struct {
	Prefix  *string
	Cleanup *bool
}

// newWordPieceStep returns the decoder's step: tokens without the prefix begin words, and so have a
// space before them.
func newWordPieceStep(c *component) (tokenStep, error) {
	var opt wordPieceFile
	if err := c.options(&opt); err != nil {
		return nil, err
	}
	if opt.Prefix == nil || opt.Cleanup == nil || len(*opt.Prefix) > maxLiteral {
		return nil, c.fail(fmt.Errorf("prefix or cleanup is missing, or the prefix has more than %d bytes", maxLiteral))
	}
	return func(token string, first bool) string {
		if !first {
			rest, follows := strings.CutPrefix(token, *opt.Prefix)
			if token = rest; !follows {
				token = " " + rest
			}
		}
		if *opt.Cleanup {
			for _, pair := range cleanups {
				token = strings.ReplaceAll(token, pair[0], pair[1])
			}
		}
		return token
	}, nil
}

// cleanups are the replacements of the decoder's option cleanup, in order.
var cleanups = [][2]string{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"},
	{" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}
