package guide

import (
	"errors"

	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A Vocabulary is the tokens of a model by the bytes that they spell, as a trie. Special tokens are not in it. It is static.
type Vocabulary struct {
	spelled []string // by id
	nodes   []node   // nodes[0] is the root
	size    int
}

type node struct {
	b              byte
	child, sibling int32 // 0 is none
	tokens         []uint32
}

// ErrVocabulary is what NewVocabulary fails with if the tokens cannot spell all JSON.
var ErrVocabulary = errors.New("guide: there is no token for every byte")

// NewVocabulary returns the vocabulary of a tokenizer.
func NewVocabulary(tok *tokenizer.Tokenizer) (*Vocabulary, error) {
	v := &Vocabulary{nodes: make([]node, 1), size: tok.VocabSize(), spelled: make([]string, tok.VocabSize())}
	var alone [256]bool
	for id := range uint32(v.size) {
		text, ok := tok.Spells(id)
		if !ok || text == "" {
			continue
		}
		v.spelled[id] = text
		v.add(text, id)
		if len(text) == 1 {
			alone[text[0]] = true
		}
	}
	for b, ok := range alone { // all that UTF-8 has, but for control characters
		if !ok && (b >= ' ' && b < 0x7f || b >= 0x80 && b <= 0xf4 || b == '\n') {
			return nil, ErrVocabulary
		}
	}
	return v, nil
}

func (v *Vocabulary) add(text string, id uint32) {
	at := int32(0)
	for i := range len(text) {
		at = v.step(at, text[i])
	}
	v.nodes[at].tokens = append(v.nodes[at].tokens, id)
}

// step returns the child for b, which it makes if need be.
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
