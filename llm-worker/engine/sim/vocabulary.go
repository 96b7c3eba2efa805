package sim

import (
	"slices"
	"unicode"

	"github.com/whence-dev/whence/llm-worker/guide"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A Vocabulary is the part of a model that the simulator needs.
type Vocabulary struct {
	ContextLength int // tokens of prompt and answer together
	Size          int // token ids are below Size
	EOS           []uint32
	Guides        *guide.Vocabulary // spells guided answers; nil for a model without them

	words []uint32 // the tokens of answers: words or parts of words; all tokens except EOS if there are no words
}

// NewVocabulary returns the vocabulary of a model with this tokenizer.
func NewVocabulary(contextLength, size int, eos []uint32, tok *tokenizer.Tokenizer) *Vocabulary {
	v := &Vocabulary{ContextLength: contextLength, Size: size, EOS: eos}
	var others []uint32
	for id := range uint32(size) {
		switch {
		case slices.Contains(eos, id):
		case int(id) < tok.VocabSize() && isWord(tok, id):
			v.words = append(v.words, id)
		default:
			others = append(others, id)
		}
	}
	if len(v.words) == 0 {
		v.words = others
	}
	return v
}

func isWord(tok *tokenizer.Tokenizer, id uint32) bool {
	letters := 0
	for _, r := range tok.Decode([]uint32{id}, false) {
		switch {
		case unicode.IsLetter(r):
			letters++
		case r != ' ':
			return false
		}
	}
	return letters > 0 && !tok.IsSpecial(id)
}
