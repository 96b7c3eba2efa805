package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// A model converts words to ids.
type model interface {
	Encode(ids []uint32, word string, mg *bpeMerger) []uint32
	ID(token string) (uint32, bool)
}

// A unigram chooses the tokens with the greatest sum of scores. It is immutable. There are two kinds:
// SentencePiece's, and that of a tokenizer.json, which is the Rust library's.
type unigram struct {
	pieces  lexicon
	byText  map[string]uint32
	bytes   [256]uint32 // byte tokens, or noToken
	falls   bool        // unknown characters become bytes
	unknown uint32
	penalty float64 // score of an unknown character
	// listed is the Rust library's kind. Its sums are float64, and SentencePiece's float32: rounding
	// decides between equals. And of several unknown characters together it looks for a token, and for
	// bytes only if there are tokens for all.
	listed  bool
	cache   *wordCache // of a listed unigram: SentencePiece's words are whole texts
	scratch sync.Pool
}

// unknownPenalty is how much worse an unknown character is than the worst piece.
const unknownPenalty = 10

// newPieces returns the unigram of a SentencePiece model.
func newPieces(m *spmModel, ranks []uint32) (*unigram, error) {
	u := &unigram{byText: make(map[string]uint32, len(m.pieces)), falls: m.byteFallback, unknown: noToken}
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
	if u.unknown == noToken {
		return nil, errors.New("there is no unknown piece")
	}
	u.penalty = float64(least - unknownPenalty)
	var pieces []lexeme
	for i, p := range m.pieces {
		switch {
		case p.kind == normalPiece && ranks[i] != noRank:
			pieces = append(pieces, lexeme{p.text, uint32(i), float64(p.score)})
		case p.kind == userPiece:
			pieces = append(pieces, lexeme{p.text, uint32(i), float64(float32(float64(float32(len(p.text))*most) - 0.1))})
		}
	}
	u.pieces = newLexicon(pieces)
	if b := u.findBytes(); b >= 0 && u.falls {
		return nil, fmt.Errorf("no piece has the byte %#02x", b)
	}
	return u, nil
}

// maxPiece is the maximum length in bytes of a token of a model that looks for all tokens at every
// character of a word.
const maxPiece = 512

// newUnigram returns the unigram of a tokenizer.json. unknown is an index into its tokens.
func newUnigram(tokens []scoredToken, unknown *int, falls bool) (*unigram, error) {
	if unknown == nil || *unknown < 0 || *unknown >= len(tokens) {
		return nil, errors.New("unk_id is not the id of a token: a text with an unknown character would have no tokens")
	}
	u := &unigram{
		byText: make(map[string]uint32, len(tokens)), falls: falls, unknown: uint32(*unknown), penalty: tokens[0].score,
		listed: true, cache: newWordCache(),
	}
	for id, t := range tokens {
		if len(t.text) > maxPiece {
			return nil, fmt.Errorf("token %.40q has %d bytes; at most %d are allowed", t.text, len(t.text), maxPiece)
		}
		u.byText[t.text] = uint32(id)
		u.penalty = min(u.penalty, t.score)
	}
	u.penalty -= unknownPenalty
	pieces := make([]lexeme, 0, len(u.byText))
	for text, id := range u.byText {
		if text != "" {
			pieces = append(pieces, lexeme{text, id, tokens[id].score})
		}
	}
	u.pieces = newLexicon(pieces)
	u.findBytes()
	return u, nil
}

// findBytes sets the byte tokens. It returns a byte that has no token, or -1.
func (u *unigram) findBytes() (missing int) {
	missing = -1
	for b := range u.bytes {
		id, ok := u.byText[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			id = noToken
			if missing < 0 {
				missing = b
			}
		}
		u.bytes[b] = id
	}
	return missing
}

// ID returns the id of a token.
func (u *unigram) ID(token string) (uint32, bool) {
	id, ok := u.byText[token]
	return id, ok
}

// A unigramStep is the best way to a position: the piece that ends there.
type unigramStep struct {
	score float64
	start int32 // -1 if there is no way
	id    uint32
}

// Encode appends the ids of word.
func (u *unigram) Encode(ids []uint32, word string, _ *bpeMerger) []uint32 {
	if u.cache == nil {
		return u.encode(ids, word)
	}
	slot := u.cache.Slot(word)
	if known, ok := slot.Find(word); ok {
		return append(ids, known...)
	}
	n := len(ids)
	ids = u.encode(ids, word)
	slot.Store(word, ids[n:])
	return ids
}

func (u *unigram) encode(ids []uint32, word string) []uint32 {
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
		reach := func(end int, id uint32, score float64) {
			if score += before; !u.listed {
				score = float64(float32(score)) // the sum of two float32
			}
			if step := &best[end]; step.start < 0 || score > step.score {
				*step = unigramStep{score, int32(start), id}
			}
		}
		u.pieces.prefixes(word[start:], func(t *lexeme) {
			single = single || len(t.text) == size
			reach(start+len(t.text), t.id, t.score)
		})
		if !single {
			reach(start+size, u.unknown, u.penalty)
		}
	}
	return best
}

// known replaces unknown characters: by bytes, or by one token for those that follow each other.
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
		if id != u.unknown {
			ids, start = append(ids, id), ends[i]
			continue
		}
		if i+1 == len(found) || found[i+1] != u.unknown {
			ids, start = u.unknowns(ids, word[start:ends[i]]), ends[i]
		}
	}
	return ids
}

// unknowns appends the ids of unknown characters that follow each other.
func (u *unigram) unknowns(ids []uint32, text string) []uint32 {
	if id, ok := u.byText[text]; ok && u.listed {
		return append(ids, id)
	}
	if !u.falls {
		return append(ids, u.unknown)
	}
	n := len(ids)
	for _, b := range []byte(text) {
		if u.bytes[b] == noToken {
			return append(ids[:n], u.unknown)
		}
		ids = append(ids, u.bytes[b])
	}
	return ids
}
