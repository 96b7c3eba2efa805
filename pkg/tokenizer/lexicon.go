package tokenizer

import (
	"slices"
	"strings"
)

// A lexicon finds the tokens with which a text begins. It is immutable.
type lexicon struct {
	tokens []lexeme   // sorted by text; no text is empty
	firsts [257]int32 // index of the first token that begins with a byte, or with a greater one
}

type lexeme struct {
	text  string
	id    uint32
	score float64
}

// newLexicon returns the lexicon of tokens, which it keeps. Their texts are different.
func newLexicon(tokens []lexeme) lexicon {
	l := lexicon{tokens: tokens}
	slices.SortFunc(tokens, func(a, b lexeme) int { return strings.Compare(a.text, b.text) })
	for b := range l.firsts {
		l.firsts[b] = int32(len(tokens))
	}
	for i := len(tokens) - 1; i >= 0; i-- {
		for b := int(tokens[i].text[0]); b >= 0 && int(l.firsts[b]) > i; b-- {
			l.firsts[b] = int32(i)
		}
	}
	return l
}

// prefixes calls see for every token with which text begins, the shortest first.
func (l *lexicon) prefixes(text string, see func(*lexeme)) {
	low, high := int(l.firsts[text[0]]), int(l.firsts[int(text[0])+1])
	for n := 1; low < high; n++ {
		if t := &l.tokens[low]; len(t.text) == n {
			see(t)
			low++
		}
		if n == len(text) {
			break
		}
		low, high = l.narrow(low, high, n, text[n])
	}
}

// narrow returns the tokens among those from low to high whose byte at i is b.
func (l *lexicon) narrow(low, high, i int, b byte) (int, int) {
	among := l.tokens[low:high]
	first, _ := slices.BinarySearchFunc(among, b, func(t lexeme, b byte) int { return int(t.text[i]) - int(b) })
	last, _ := slices.BinarySearchFunc(among[first:], int(b)+1, func(t lexeme, b int) int { return int(t.text[i]) - b })
	return low + first, low + first + last
}
