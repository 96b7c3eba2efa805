package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/tokenizer/bpe"
)

// A model converts words to ids.
type model interface {
	Encode(ids []uint32, word string, mg *bpe.Merger) []uint32
	ID(token string) (uint32, bool)
}

// A unigram is a SentencePiece model that chooses the tokens with the greatest sum of scores. It is
// immutable.
type unigram struct {
	pieces  []unigramPiece // sorted by text
	firsts  [257]int32     // index of the first piece that begins with a byte, or with a greater one
	byText  map[string]uint32
	bytes   [256]uint32 // byte tokens, if unknown characters become bytes
	falls   bool
	unknown uint32
	penalty float32 // score of an unknown character
	scratch sync.Pool
}

type unigramPiece struct {
	text  string
	id    uint32
	score float32
}

// unknownPenalty is how much worse an unknown character is than the worst piece.
const unknownPenalty = 10

func newUnigram(m *spmModel, ranks []uint32) (*unigram, error) {
	u := &unigram{byText: make(map[string]uint32, len(m.pieces)), falls: m.byteFallback, unknown: bpe.None}
	var least, most float32
	first := true
	for i, p := range m.pieces {
		u.byText[p.text] = uint32(i)
		if p.kind == unknownPiece {
			u.unknown = uint32(i)
		}
		if p.kind == normalPiece {
			if first {
				least, most, first = p.score, p.score, false
			}
			least, most = min(least, p.score), max(most, p.score)
		}
	}
	if u.unknown == bpe.None {
		return nil, errors.New("there is no unknown piece")
	}
	u.penalty = least - unknownPenalty
	for i, p := range m.pieces {
		switch {
		case p.kind == normalPiece && ranks[i] != noRank:
			u.pieces = append(u.pieces, unigramPiece{p.text, uint32(i), p.score})
		case p.kind == userPiece:
			u.pieces = append(u.pieces, unigramPiece{p.text, uint32(i), float32(float64(float32(len(p.text))*most) - 0.1)})
		}
	}
	slices.SortFunc(u.pieces, func(a, b unigramPiece) int { return strings.Compare(a.text, b.text) })
	for b := range u.firsts {
		u.firsts[b] = int32(len(u.pieces))
	}
	for i := len(u.pieces) - 1; i >= 0; i-- {
		for b := int(u.pieces[i].text[0]); b >= 0 && int(u.firsts[b]) > i; b-- {
			u.firsts[b] = int32(i)
		}
	}
	for b := range u.bytes {
		id, ok := u.byText[fmt.Sprintf("<0x%02X>", b)]
		if !ok && u.falls {
			return nil, fmt.Errorf("no piece has the byte %#02x", b)
		}
		u.bytes[b] = id
	}
	return u, nil
}

// ID returns the id of a token.
func (u *unigram) ID(token string) (uint32, bool) {
	id, ok := u.byText[token]
	return id, ok
}

// A step is the best way to a position: the piece that ends there.
type unigramStep struct {
	score float32
	start int32 // -1 if there is no way
	id    uint32
}

// Encode appends the ids of word.
func (u *unigram) Encode(ids []uint32, word string, _ *bpe.Merger) []uint32 {
	reused, _ := u.scratch.Get().(*[]unigramStep)
	if reused == nil {
		reused = new([]unigramStep)
	}
	best := u.ways((*reused)[:0], word)
	n := len(ids)
	for end := len(word); end > 0; end = int(best[end].start) {
		ids = append(ids, best[end].id)
	}
	slices.Reverse(ids[n:])
	ids = u.known(ids, n, word, best)
	if *reused = best; cap(best) < maxScratch {
		u.scratch.Put(reused)
	}
	return ids
}

// ways finds the best way to every position.
func (u *unigram) ways(best []unigramStep, word string) []unigramStep {
	best = slices.Grow(best, len(word)+1)[:len(word)+1]
	for i := range best {
		best[i] = unigramStep{start: -1}
	}
	for start, r := range word {
		before := best[start].score
		size := utf8.RuneLen(r)
		single := false
		// The precision is SentencePiece's: rounding decides between equals.
		reach := func(end int, id uint32, score float32) {
			if step := &best[end]; step.start < 0 || before+score > step.score {
				*step = unigramStep{before + score, int32(start), id}
			}
		}
		low, high := int(u.firsts[word[start]]), int(u.firsts[int(word[start])+1])
		for end := start + 1; low < high; end++ {
			if p := &u.pieces[low]; len(p.text) == end-start {
				single = single || len(p.text) == size
				reach(end, p.id, p.score)
				low++
			}
			if end == len(word) {
				break
			}
			low, high = u.narrow(low, high, end-start, word[end])
		}
		if !single {
			reach(start+size, u.unknown, u.penalty)
		}
	}
	return best
}

// narrow returns the pieces among those from low to high whose byte at i is b.
func (u *unigram) narrow(low, high, i int, b byte) (int, int) {
	among := u.pieces[low:high]
	first, _ := slices.BinarySearchFunc(among, b, func(p unigramPiece, b byte) int { return int(p.text[i]) - int(b) })
	last, _ := slices.BinarySearchFunc(among[first:], int(b)+1, func(p unigramPiece, b int) int { return int(p.text[i]) - b })
	return low + first, low + first + last
}

// known replaces unknown characters by bytes, and joins those that follow each other otherwise.
func (u *unigram) known(ids []uint32, from int, word string, best []unigramStep) []uint32 {
	if !slices.Contains(ids[from:], u.unknown) {
		return ids
	}
	var ends []int
	for end := len(word); end > 0; end = int(best[end].start) {
		ends = append(ends, end)
	}
	slices.Reverse(ends)
	found := slices.Clone(ids[from:])
	ids = ids[:from]
	start := 0
	for i, id := range found {
		switch {
		case id != u.unknown:
			ids = append(ids, id)
		case u.falls:
			for _, b := range []byte(word[start:ends[i]]) {
				ids = append(ids, u.bytes[b])
			}
		case i == 0 || found[i-1] != u.unknown:
			ids = append(ids, id)
		}
		start = ends[i]
	}
	return ids
}
