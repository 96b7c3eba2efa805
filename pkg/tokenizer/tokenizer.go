// Package tokenizer converts text to a model's token ids and back, exactly as the model's
// tokenizer.json specifies, or a file of another format: tekken.json, a tiktoken file, or a
// SentencePiece model.
//
// It supports these families of the Hugging Face format: BPE, byte-level (Llama 3, Qwen, GPT-OSS,
// DeepSeek) and SentencePiece's with byte fallback (Llama 2, Mistral, Gemma), Unigram (T5, XLM-R) and
// WordPiece (BERT). The reference is the
// Rust library "tokenizers" 0.22: a Tokenizer returns the same ids for the same text, and the same
// text for the same ids. testdata has the results of that library; scripts/goldens-tokenizer
// regenerates them.
//
// Units: ids are indexes of the model's embedding table; text is UTF-8. Offsets, pairs of
// sequences, truncation and padding are deliberately absent: Whence does not need them, and limits
// are the caller's. So the "truncation" and "padding" sections of a file are ignored.
//
// Errors: Load refuses, by name, every unknown component and every inconsistent table, because an
// almost correct tokenizer makes a model wrong without any sign of it. After Load, any ids can be
// decoded. EncodeText fails, with ErrLimit, only if the file's expressions take too long on a text,
// or its normalizers make the text too long: files come from strangers, too.
//
// Cost: encoding takes O(n log n) time in the length of any text if the file's expressions have
// scanners (see package pattern). Other expressions run on a backtracking machine, with a limit of
// steps. Incremental decoding takes O(1) amortized time per token.
//
// Source: github.com/huggingface/tokenizers.
package tokenizer

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// A Tokenizer is one model's vocabulary and rules. It is safe for concurrent use.
type Tokenizer struct {
	// Static after Load.
	model     model
	normalize normalizer
	stages    []preTokenizer
	template  template
	raw       *addedMatcher // added tokens found in the original text
	normal    *addedMatcher // added tokens found in the normalized text
	added     map[string]uint32
	spelling  spelling

	// Built for the first Speller, because most users need no Speller.
	spellOnce sync.Once
	spell     *spellTable

	scratch sync.Pool // of *scratch; safe for concurrent use
}

// scratch is the memory of one Encode. It is reused, so that a call allocates little more than its
// result.
type scratch struct {
	outer, inner []segment
	pieces, next []piece
	spans        []pattern.Span
	parts        []part
	merger       bpeMerger

	began time.Time
	err   error // why the text cannot be encoded
}

// fail records the first error.
func (sc *scratch) fail(err error) {
	if sc.err == nil {
		sc.err = fmt.Errorf("%w: %w", ErrLimit, err)
	}
}

// ErrLimit is wrapped by the error of a text that cannot be encoded within the limits of this package.
var ErrLimit = errors.New("tokenizer limit exceeded")

// maxTime bounds the time of EncodeText with expressions that have no scanner.
const maxTime = 10 * time.Second

// piecesPerLook is the number of pieces after which EncodeText looks at the clock.
const piecesPerLook = 32

// maxScratch is the maximum capacity, in pieces and symbols, of a scratch that is reused. A larger
// scratch, after a very long text, is dropped to free its memory.
const maxScratch = 1 << 16

// Encode returns the ids of text. With addSpecial, the file's post-processor adds its tokens, such
// as the token that begins every text. Text that equals an added token becomes that token wherever
// it occurs. Chat templates need this, so callers must remove such text from users' input. Invalid
// UTF-8 becomes U+FFFD, one for each maximal subpart. A text that EncodeText refuses has no ids:
// Encode is for texts of our own.
func (t *Tokenizer) Encode(text string, addSpecial bool) []uint32 {
	ids, err := t.EncodeText(text, addSpecial)
	if err != nil {
		return nil
	}
	return ids
}

// EncodeText is Encode for the texts of others. Its error wraps ErrLimit.
func (t *Tokenizer) EncodeText(text string, addSpecial bool) ([]uint32, error) {
	if !utf8.ValidString(text) {
		text = string(appendLossy(nil, []byte(text)))
	}
	sc, _ := t.scratch.Get().(*scratch)
	if sc == nil {
		sc = new(scratch)
	}
	sc.began, sc.err = time.Now(), nil
	ids := make([]uint32, 0, len(text)/4+8)
	for _, part := range t.template {
		switch {
		case part.text:
			ids = t.encode(ids, text, sc)
		case addSpecial:
			ids = append(ids, part.ids...)
		}
	}
	err := sc.err
	if cap(sc.pieces)+cap(sc.next)+sc.merger.Size() < maxScratch {
		t.scratch.Put(sc)
	}
	return ids, err
}

// encode splits text at its added tokens: first at tokens that match before normalization, and
// then, between them, at tokens that match after normalization.
func (t *Tokenizer) encode(ids []uint32, text string, sc *scratch) []uint32 {
	sc.outer = t.raw.split(sc.outer[:0], text)
	for _, seg := range sc.outer {
		if seg.id != noToken {
			ids = append(ids, seg.id)
			continue
		}
		p, err := t.normalize(piece{text: text[seg.start:seg.end], first: seg.start == 0})
		if err != nil {
			sc.fail(err)
			return ids
		}
		sc.inner = t.normal.split(sc.inner[:0], p.text)
		for _, in := range sc.inner {
			if in.id != noToken {
				ids = append(ids, in.id)
				continue
			}
			ids = t.encodePlain(ids, piece{text: p.text[in.start:in.end], first: p.first && in.start == 0}, sc)
		}
	}
	return ids
}

// encodePlain splits normalized text into words, and encodes each word.
func (t *Tokenizer) encodePlain(ids []uint32, p piece, sc *scratch) []uint32 {
	sc.pieces = append(sc.pieces[:0], p)
	for _, stage := range t.stages {
		sc.next = sc.next[:0]
		for i, p := range sc.pieces {
			if i%piecesPerLook == 0 && time.Since(sc.began) > maxTime {
				sc.fail(pattern.ErrSlow)
			}
			if sc.err != nil {
				return ids
			}
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

// Decode returns the text of ids. With skipSpecial it omits special tokens. Ids without a token,
// such as the gaps of vocabularies, have no text. Bytes that are not UTF-8 become U+FFFD, as in
// Rust's from_utf8_lossy.
func (t *Tokenizer) Decode(ids []uint32, skipSpecial bool) string {
	d := t.NewDecoder(skipSpecial)
	text := d.Next(ids...)
	return text + d.Flush()
}

// VocabSize returns the largest id plus one.
func (t *Tokenizer) VocabSize() int { return len(t.spelling.tokens) }

// TokenID returns the id of the token that the file writes as content.
func (t *Tokenizer) TokenID(content string) (uint32, bool) {
	if id, ok := t.added[content]; ok {
		return id, true
	}
	return t.model.ID(content)
}

// IsSpecial reports whether Decode omits id when it skips special tokens.
func (t *Tokenizer) IsSpecial(id uint32) bool {
	return int64(id) < int64(len(t.spelling.tokens)) && t.spelling.tokens[id].is(special)
}

// Bytes returns the bytes that a token adds to a text, which may be a part of a character. first
// says that the text begins with the token. An id without a token adds no bytes.
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
	case first: // the beginning of a text depends on the decoder
		return []byte(t.Decode([]uint32{id}, false))
	default:
		return []byte(t.spelling.gap + token.text)
	}
}
