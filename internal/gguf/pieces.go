package gguf

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of a SentencePiece model, and the type of those that llama.cpp reads.
const (
	fieldPieces, fieldTrainer, fieldNormalizer    = 1, 2, 3
	fieldText, fieldScore, fieldKind              = 1, 2, 3 // of a piece
	fieldModelType, fieldByteFallback             = 3, 35   // of the trainer
	fieldDummyPrefix, fieldTrim, fieldEscapeSpace = 3, 4, 5 // of the normalizer

	bpeModel = 2
)

// pieces makes tokenizer.model, a SentencePiece model, as llama.cpp applies it: tokens are joined by
// their scores, and text is not normalized.
func (m *model) pieces() ([]byte, error) {
	v, err := m.vocabulary()
	if err != nil {
		return nil, err
	}
	list, _ := m.header.meta["tokenizer.ggml.scores"].(numberList) // another type counts as missing
	scores, ok := list.floats()
	if !ok || len(scores) != len(v.tokens) {
		return nil, fmt.Errorf("there are %d tokens and %d scores: %w", len(v.tokens), len(scores), ErrTokenizer)
	}
	var file []byte
	message := func(b []byte, field protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), content)
	}
	number := func(b []byte, field protowire.Number, n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
	}
	fallback := false
	for id, token := range v.tokens {
		kind := v.types[id]
		switch kind {
		case byteToken:
			fallback = true
		case unusedToken:
			kind = byteToken // no text becomes such a token, as that of a byte only when nothing else fits
		}
		piece := message(nil, fieldText, []byte(token))
		piece = protowire.AppendFixed32(protowire.AppendTag(piece, fieldScore, protowire.Fixed32Type), math.Float32bits(scores[id]))
		file = message(file, fieldPieces, number(piece, fieldKind, uint64(kind)))
	}
	trainer := number(nil, fieldModelType, bpeModel)
	file = message(file, fieldTrainer, number(trainer, fieldByteFallback, protowire.EncodeBool(fallback)))
	prefix, given := m.header.meta["tokenizer.ggml.add_space_prefix"].(bool)
	trim, _ := m.header.meta["tokenizer.ggml.remove_extra_whitespaces"].(bool) // false if it is missing
	normalizer := number(nil, fieldDummyPrefix, protowire.EncodeBool(prefix || !given))
	normalizer = number(normalizer, fieldTrim, protowire.EncodeBool(trim))
	return message(file, fieldNormalizer, number(normalizer, fieldEscapeSpace, 1)), nil
}
