package llamacpp

import (
	"fmt"
	"strings"

	"github.com/whence-dev/whence/pkg/tokenizer"
)

// pieces are the tokens of a model by the bytes that they spell. It is immutable.
type pieces struct {
	tokens *tokenizer.Tokenizer
	ids    map[string]uint32
}

// maxLost bounds the tokens that an event may have lost, and maxText the bytes of their text: a token
// may be long, and end with the beginning of a character.
const (
	maxLost = 16
	maxText = 512
)

func newPieces(tokens *tokenizer.Tokenizer) pieces {
	p := pieces{tokens, make(map[string]uint32, tokens.VocabSize())}
	for id := range uint32(tokens.VocabSize()) {
		text, ok := tokens.Spells(id)
		if _, known := p.ids[text]; ok && text != "" && !known {
			p.ids[text] = id
		}
	}
	return p
}

// lostIDs returns the ids of the n tokens in front of ids that together with ids spell text. If
// several sequences of n tokens do, it prefers the longest first token: no other fact tells the model's choice.
// A single lost token is always found exactly, unless two tokens spell the same bytes.
func (p *pieces) lostIDs(text string, ids []uint32, n int) ([]uint32, error) {
	var tail strings.Builder
	for _, id := range ids {
		piece, _ := p.tokens.Spells(id) // special tokens have no text
		tail.WriteString(piece)
	}
	rest, ok := strings.CutSuffix(text, tail.String())
	if ok && n <= maxLost && len(rest) <= maxText {
		s := speller{p, rest, make(map[[2]int]bool)}
		if found, ok := s.from(0, n); ok {
			return found, nil
		}
	}
	return nil, fmt.Errorf("the server did not send the ids of %d tokens, and no ids spell their text: does it run this model?", n)
}

// A speller finds tokens that spell a text. It remembers where no tokens do, so that its cost is
// bounded by the length of the text and the number of tokens.
type speller struct {
	pieces *pieces
	text   string
	dead   map[[2]int]bool // by position in text and number of tokens
}

// from returns exactly n tokens that spell the text from a position on; ok is false if none do.
func (s *speller) from(at, n int) (ids []uint32, ok bool) {
	rest := s.text[at:]
	if n == 0 {
		return nil, rest == ""
	}
	key := [2]int{at, n}
	if s.dead[key] {
		return nil, false
	}
	for cut := len(rest) - (n - 1); cut > 0; cut-- { // each further token has at least a byte
		id, known := s.pieces.ids[rest[:cut]]
		if !known {
			continue
		}
		if more, ok := s.from(at+cut, n-1); ok {
			return append([]uint32{id}, more...), true
		}
	}
	s.dead[key] = true
	return nil, false
}
