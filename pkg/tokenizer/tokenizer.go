// Package tokenizer turns text into a model's token ids and back, exactly as the model's tokenizer.json says.
//
// It reads the BPE families of the Hugging Face format: byte-level (Llama 3, Qwen, GPT-OSS, DeepSeek) and SentencePiece
// with byte fallback (Llama 2, Mistral, Gemma). The measure is the Rust library "tokenizers" 0.22: the same ids for the
// same text, and the same text for the same ids. testdata holds what that library answers; scripts/goldens-tokenizer
// asks it again.
//
// Units: ids are what the model's embedding table is indexed by; text is UTF-8. Offsets, pairs of sequences, truncation
// and padding are deliberately absent: nothing in Whence asks for them, and limits are the caller's. So the "truncation"
// and "padding" sections of a file are not read.
//
// Errors: only Load fails. It refuses, by name, every component it does not know and every table that contradicts
// itself, because a tokenizer that is nearly right makes a model that is quietly wrong. After Load any text encodes and
// any ids decode.
//
// Cost: encoding takes O(n log n) time in the length of the text, whatever the text, if the file's expressions have
// scanners (see package pattern); others run on a backtracking engine, with a limit on each match. Incremental decoding
// takes O(1) amortised a token.
//
// Source: github.com/huggingface/tokenizers.
package tokenizer

import (
	"sync"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/tokenizer/bpe"
	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// A Tokenizer is one model's vocabulary and rules. It is safe for concurrent use.
type Tokenizer struct {
	// Static after Load.
	model     *bpe.Model
	normalize normalizer
	stages    []preTokenizer
	template  template
	raw       *addedMatcher // added tokens found in the text as it came
	normal    *addedMatcher // added tokens found in the normalized text
	added     map[string]uint32
	spelling  spelling

	// Made when the first Speller is, since most users need none.
	spellOnce sync.Once
	spell     *spellTable

	scratch sync.Pool // of *scratch; safe for concurrent use
}

// scratch is what one Encode works in, kept from call to call so that a call allocates little but its result.
type scratch struct {
	outer, inner []segment
	pieces, next []piece
	spans        []pattern.Span
	parts        []part
	merger       bpe.Merger
}

// maxScratch is how many pieces and symbols a scratch may have room for and still be kept; a larger one, left by a very
// long text, is dropped instead of pinning its memory.
const maxScratch = 1 << 16

// Encode returns the ids of text. With addSpecial the file's post-processor adds its tokens, such as the one that begins
// every text. Text that spells an added token becomes that token wherever it stands: chat templates need that, and what
// users wrote must be cleaned of it before. Invalid UTF-8 reads as U+FFFD, one for each maximal subpart.
func (t *Tokenizer) Encode(text string, addSpecial bool) []uint32 {
	if !utf8.ValidString(text) {
		text = string(appendLossy(nil, []byte(text)))
	}
	sc, _ := t.scratch.Get().(*scratch)
	if sc == nil {
		sc = new(scratch)
	}
	ids := make([]uint32, 0, len(text)/4+8)
	for _, part := range t.template {
		switch {
		case part.text:
			ids = t.encode(ids, text, sc)
		case addSpecial:
			ids = append(ids, part.ids...)
		}
	}
	if cap(sc.pieces)+cap(sc.next)+sc.merger.Size() < maxScratch {
		t.scratch.Put(sc)
	}
	return ids
}

// encode cuts text at its added tokens: first at those that match before normalization, then, in what lies between, at
// those that match after it.
func (t *Tokenizer) encode(ids []uint32, text string, sc *scratch) []uint32 {
	sc.outer = t.raw.split(sc.outer[:0], text)
	for _, seg := range sc.outer {
		if seg.id != bpe.None {
			ids = append(ids, seg.id)
			continue
		}
		p := t.normalize(piece{text: text[seg.start:seg.end], first: seg.start == 0})
		sc.inner = t.normal.split(sc.inner[:0], p.text)
		for _, in := range sc.inner {
			if in.id != bpe.None {
				ids = append(ids, in.id)
				continue
			}
			ids = t.encodePlain(ids, piece{text: p.text[in.start:in.end], first: p.first && in.start == 0}, sc)
		}
	}
	return ids
}

// encodePlain cuts normalized text into words and merges each.
func (t *Tokenizer) encodePlain(ids []uint32, p piece, sc *scratch) []uint32 {
	sc.pieces = append(sc.pieces[:0], p)
	for _, stage := range t.stages {
		sc.next = sc.next[:0]
		for _, p := range sc.pieces {
			if p.text != "" {
				sc.next = stage.split(sc.next, p, sc)
			}
		}
		sc.pieces, sc.next = sc.next, sc.pieces
	}
	for _, p := range sc.pieces {
		ids = t.model.Encode(ids, p.text, &sc.merger)
	}
	return ids
}

// Decode returns the text of ids; with skipSpecial the special tokens among them are left out. An id that no token has
// is left out too, as are the holes that vocabularies have. Bytes that are not UTF-8 become U+FFFD, in the manner of
// Rust's from_utf8_lossy.
func (t *Tokenizer) Decode(ids []uint32, skipSpecial bool) string {
	d := t.NewDecoder(skipSpecial)
	text := d.Next(ids...)
	return text + d.Flush()
}

// VocabSize returns the largest id and one.
func (t *Tokenizer) VocabSize() int { return len(t.spelling.tokens) }

// TokenID returns the id of the token that the file spells content.
func (t *Tokenizer) TokenID(content string) (uint32, bool) {
	if id, ok := t.added[content]; ok {
		return id, true
	}
	return t.model.ID(content)
}

// IsSpecial reports whether Decode leaves id out when asked to skip special tokens.
func (t *Tokenizer) IsSpecial(id uint32) bool {
	return int64(id) < int64(len(t.spelling.tokens)) && t.spelling.tokens[id].is(special)
}

// Bytes returns what a token adds to a text, which may be part of a character; first says that the text begins with it. An id
// that no token has adds nothing.
func (t *Tokenizer) Bytes(id uint32, first bool) []byte {
	if int64(id) >= int64(len(t.spelling.tokens)) {
		return nil
	}
	switch token := &t.spelling.tokens[id]; {
	case !token.is(known):
		return nil
	case token.is(byteOnly):
		return []byte{token.value}
	case !token.is(whole):
		return []byte(token.text)
	case first: // decoders treat the beginning of a text in many ways
		return []byte(t.Decode([]uint32{id}, false))
	default:
		return []byte(t.spelling.gap + token.text)
	}
}
