// Package textonly has what chat-service and llm-worker agree on where no service has the files of a
// model: conversations and answers pass as text, and the server that generates renders and parses
// them.
package textonly

import (
	"encoding/binary"
	"math"
)

const (
	// Model is the value of --model, and of a card's directory, that stands for no files.
	Model = "none"
	// Checksum stands where the checksum of a tokenizer does. It is no checksum of any tokenizer, so a
	// service with files and one without never fit together.
	Checksum = "text:1"
	// VocabSize is the number of different words.
	VocabSize = 1 << 14
	// NoLimit is the context length of a model whose server does not report one. Servers refuse what
	// does not fit themselves.
	NoLimit = math.MaxInt32
)

// Words returns a number for each piece of text, in place of the token ids of a prompt. There are about
// as many words as tokens, and texts with a common beginning have words with a common beginning, so that
// routers can weigh and compare prompts.
func Words(text string) []uint32 {
	words := make([]uint32, 0, Count(text))
	for len(text) > 0 {
		var piece [bytesPerWord]byte
		text = text[copy(piece[:], text):]
		words = append(words, binary.LittleEndian.Uint32(piece[:])*multiplier>>(32-14))
	}
	return words
}

// Count estimates the number of tokens of texts together, as the number of their words.
func Count(texts ...string) (n int) {
	for _, text := range texts {
		n += (len(text) + bytesPerWord - 1) / bytesPerWord
	}
	return n
}

const (
	bytesPerWord = 4
	multiplier   = 2654435769 // 2^32 divided by the golden ratio spreads the bits
)
