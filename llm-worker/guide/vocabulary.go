package guide

import (
	"errors"

	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A Vocabulary is a trie of a model's tokens by the bytes that they spell, without special tokens.
// It is immutable.
type Vocabulary struct {
	spelled []string // by id
	nodes   []node   // nodes[0] is the root
	size    int
	alone   class // the bytes that are one-byte tokens
}

type node struct {
	b              byte
	child, sibling int32 // 0 means none
	tokens         []uint32
}

// ErrVocabulary is the error of NewVocabulary if the tokens cannot spell all JSON.
var ErrVocabulary = errors.New("guide: there is no token for every byte")

// NewVocabulary returns the vocabulary of a tokenizer.
func NewVocabulary(tok *tokenizer.Tokenizer) (*Vocabulary, error) {
	v := &Vocabulary{nodes: make([]node, 1), size: tok.VocabSize(), spelled: make([]string, tok.VocabSize())}
	for id := range uint32(v.size) {
		text, ok := tok.Spells(id)
		if !ok || text == "" {
			continue
		}
		v.spelled[id] = text
		v.add(text, id)
	}
	for b := range 256 { // all bytes of UTF-8 except control characters
		if !v.alone.has(byte(b)) && (b >= ' ' && b < 0x7f || b >= 0x80 && b <= 0xf4 || b == '\n') {
			return nil, ErrVocabulary
		}
	}
	return v, nil
}

// lacks reports whether one of the symbols contains a byte that no one-byte token spells: an answer
// could reach a state that allows no token.
func (v *Vocabulary) lacks(symbols []*symbol) bool {
	for _, s := range symbols {
		for _, p := range s.parts {
			if p.kind == oneByte && !p.class.meets(&v.alone) {
				return true
			}
		}
	}
	return false
}

func (v *Vocabulary) add(text string, id uint32) {
	at := int32(0)
	for i := range len(text) {
		at = v.step(at, text[i])
	}
	v.nodes[at].tokens = append(v.nodes[at].tokens, id)
	if len(text) == 1 {
		v.alone.add(text[0], text[0])
	}
}

// step returns the child for b, and creates it if necessary.
func (v *Vocabulary) step(at int32, b byte) int32 {
	for down := v.nodes[at].child; down != 0; down = v.nodes[down].sibling {
		if v.nodes[down].b == b {
			return down
		}
	}
	down := int32(len(v.nodes))
	v.nodes = append(v.nodes, node{b: b, sibling: v.nodes[at].child})
	v.nodes[at].child = down
	return down
}
