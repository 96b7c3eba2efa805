package guide

import (
	"errors"
	"slices"
	"strings"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A Vocabulary is a trie of a model's tokens by the bytes that they spell, without special tokens.
// It is immutable.
type Vocabulary struct {
	spelled []string // by id
	nodes   []node   // in preorder; nodes[0] is the root
	ids     []uint32 // of the tokens, in the order of their nodes
	longest int      // bytes of the longest token
	alone   grammar.Class
	strings tables // of grammar.Characters
}

// A node is a string of bytes with which tokens begin.
type node struct {
	end   int32 // the node after all descendants
	token int32 // the node's tokens are ids[token:] up to the token of the next node
	depth uint16
	b     byte // the last byte
}

// ErrVocabulary is the error of NewVocabulary if the tokens cannot spell all JSON.
var ErrVocabulary = errors.New("guide: there is no token for every byte")

// NewVocabulary returns the vocabulary of a tokenizer.
func NewVocabulary(tok *tokenizer.Tokenizer) (*Vocabulary, error) {
	spelled := make([]string, tok.VocabSize())
	for id := range spelled {
		if text, ok := tok.Spells(uint32(id)); ok {
			spelled[id] = text
		}
	}
	return spell(spelled)
}

// maxToken is the length of a token beyond which no guide allows it.
const maxToken = 1 << 12

// spell returns the vocabulary of tokens by what they spell; special tokens spell nothing.
func spell(spelled []string) (*Vocabulary, error) {
	v := &Vocabulary{spelled: spelled}
	for id, text := range spelled {
		if text != "" && len(text) <= maxToken {
			v.ids = append(v.ids, uint32(id))
		}
		if len(text) == 1 {
			v.alone.Add(text[0], text[0])
		}
	}
	for b := range 256 { // all bytes of UTF-8 except control characters
		if !v.alone.Has(byte(b)) && (b >= ' ' && b < 0x7f || b >= 0x80 && b <= 0xf4 || b == '\n') {
			return nil, ErrVocabulary
		}
	}
	slices.SortStableFunc(v.ids, func(a, b uint32) int { return strings.Compare(spelled[a], spelled[b]) })
	v.grow()
	v.strings = v.newTables([]*grammar.DFA{grammar.Characters})
	return v, nil
}

// grow makes the nodes from the sorted ids.
func (v *Vocabulary) grow() {
	v.nodes = []node{{}}
	path := []int32{0} // the nodes of the last text
	last := ""
	shut := func(depth int) { // the nodes of the path below depth have all descendants
		for ; len(path) > depth+1; path = path[:len(path)-1] {
			v.nodes[path[len(path)-1]].end = int32(len(v.nodes))
		}
	}
	for i, id := range v.ids {
		text, common := v.spelled[id], 0
		for common < min(len(last), len(text)) && last[common] == text[common] {
			common++
		}
		shut(common)
		for at := common; at < len(text); at++ {
			path = append(path, int32(len(v.nodes)))
			v.nodes = append(v.nodes, node{b: text[at], depth: uint16(at + 1), token: int32(i)}) //nolint:gosec // see maxToken
		}
		last, v.longest = text, max(v.longest, len(text))
	}
	shut(0)
	v.nodes[0].end = int32(len(v.nodes))
	v.nodes = append(v.nodes, node{token: int32(len(v.ids))}) // after the last one
}

// tokens returns the tokens that a node spells completely.
func (v *Vocabulary) tokens(at int32) []uint32 {
	n := &v.nodes[at]
	end := v.nodes[at+1].token
	return v.ids[n.token:end]
}
