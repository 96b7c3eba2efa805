package llamacpp

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/tokenizer"
)

// pieces are the tokens of a model by the bytes that they spell. It is immutable.
type pieces struct {
	tokens    *tokenizer.Tokenizer
	ids       map[string]uint32
	illFormed []piece // the tokens that are not valid UTF-8, in the order in which a speller tries them
	longest   int     // bytes of the longest token
}

// A piece is a token and its bytes.
type piece struct {
	text string
	id   uint32
}

// maxLost bounds the tokens that an event may have lost, and maxText the bytes of their text: a token
// may be long, and end with the beginning of a character.
const (
	maxLost = 16
	maxText = 512
)

func newPieces(tokens *tokenizer.Tokenizer) pieces {
	p := pieces{tokens: tokens, ids: make(map[string]uint32, tokens.VocabSize())}
	for id := range uint32(tokens.VocabSize()) {
		text, ok := tokens.Spells(id)
		if _, known := p.ids[text]; !ok || text == "" || known {
			continue
		}
		p.ids[text] = id
		p.longest = max(p.longest, len(text))
		if !utf8.ValidString(text) {
			p.illFormed = append(p.illFormed, piece{text, id})
		}
	}
	slices.SortFunc(p.illFormed, func(a, b piece) int {
		return cmp.Or(cmp.Compare(begins(b.text), begins(a.text)), cmp.Compare(len(a.text), len(b.text)), cmp.Compare(a.id, b.id))
	})
	return p
}

// begins returns how many bytes are missing after the first byte of the longest character that
// begins in text.
func begins(text string) int {
	most := 0
	for i := range len(text) {
		most = max(most, missing(text[i]))
	}
	return most
}

// lostIDs returns the ids of the tokens in front of ids that together with ids spell text. There are
// at most limit. Usually there are exactly limit, unless ahead: the server is known to count tokens
// before it sends them.
//
// The server sends an event unless its text ends within a character. So every lost token left such
// a text. If several sequences of tokens spell text, lostIDs prefers the expected number of tokens,
// then the longest first token: no other fact tells the model's choice. If text is valid UTF-8, a
// single lost token is always found exactly, unless two tokens spell the same bytes.
//
// The server sends U+FFFD for bytes that are not valid UTF-8, so these bytes are unknown. If no
// tokens spell text exactly, lostIDs guesses: it prefers tokens that begin the longest character
// (0xF0 begins an emoji), then the shortest, then the lowest id. The guess is always the same, and
// spells the text that the server sent. But the model may have chosen another token, and an answer
// that moves to another worker continues after the guess. The alternative is to end the stream.
func (p *pieces) lostIDs(text string, ids []uint32, limit int, ahead bool) ([]uint32, error) {
	var sent strings.Builder
	for _, id := range ids {
		piece, _ := p.tokens.Spells(id) // special tokens have no text
		sent.WriteString(piece)
	}
	tail := sent.String()
	if text == tail { // ids spell all of it, so the server counts tokens that it has not sent yet
		return nil, nil
	}
	if len(text)-len(tail) <= maxText {
		possible := counts(limit, ahead)
		for _, replaced := range []bool{false, true} {
			if replaced && !strings.Contains(text, replacement) {
				break
			}
			s := speller{pieces: p, text: text, tail: tail, replaced: replaced, dead: make(map[deadEnd]bool)}
			for _, n := range possible {
				if found, ok := s.from(cursor{}, n); ok {
					return found, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("the server did not send the ids of %d tokens, and no ids spell their text: does it run this model?", limit)
}

// counts returns the possible numbers of lost tokens, the likeliest first. If the server counts
// ahead, the smallest number is the likeliest: a number that is too large would leave too few
// tokens for the next events.
func counts(limit int, ahead bool) []int {
	var all []int
	for n := range min(limit, maxLost) + 1 {
		all = append(all, n)
	}
	if !ahead && limit <= maxLost {
		all = slices.Concat([]int{limit}, all[1:limit], []int{0})
	}
	return all
}

// maxReads bounds the tokens that a speller tries.
const maxReads = 1 << 18

// A speller finds tokens that spell a text. It remembers where no tokens do.
type speller struct {
	pieces   *pieces
	text     string // what the tokens and tail spell
	tail     string // bytes of the tokens that the server sent
	replaced bool   // a U+FFFD in text may stand for bytes that are not valid UTF-8
	dead     map[deadEnd]bool
	reads    int
}

// A deadEnd is a cursor that n more tokens do not lead to the end of the text.
type deadEnd struct {
	cursor
	n int
}

// from returns exactly n tokens that lead from c to the tail; ok is false if none do.
func (s *speller) from(c cursor, n int) (ids []uint32, ok bool) {
	if n == 0 {
		end, ok := s.read(c, s.tail)
		return nil, ok && end.at == len(s.text) && end.missing == 0
	}
	key := deadEnd{c, n}
	if s.dead[key] {
		return nil, false
	}
	for token := range s.tokens(c) {
		if s.reads++; s.reads > maxReads {
			return nil, false
		}
		next, ok := s.read(c, token.text)
		if !ok || next.missing == 0 { // the server would have sent an event
			continue
		}
		if more, ok := s.from(next, n-1); ok {
			return append([]uint32{token.id}, more...), true
		}
	}
	s.dead[key] = true
	return nil, false
}

// tokens yields the tokens that may follow c, the preferred ones first.
func (s *speller) tokens(c cursor) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		rest := s.text[c.at:]
		if after, ok := strings.CutPrefix(rest, c.begun); ok && !s.exact(after, yield) {
			return
		}
		if !s.replaced {
			return
		}
		if after, ok := strings.CutPrefix(rest, replacement); ok && c.begun != "" && !s.exact(after, yield) {
			return
		}
		for _, token := range s.pieces.illFormed {
			if !yield(token) {
				return
			}
		}
	}
}

// exact yields the tokens that text begins with, the longest first. If U+FFFD may stand for other
// bytes, it leaves out the tokens that are not valid UTF-8, because s.tokens yields all of them.
func (s *speller) exact(text string, yield func(piece) bool) bool {
	for end := min(len(text), s.pieces.longest); end > 0; end-- {
		id, known := s.pieces.ids[text[:end]]
		if !known || s.replaced && !utf8.ValidString(text[:end]) {
			continue
		}
		if !yield(piece{text[:end], id}) {
			return false
		}
	}
	return true
}
