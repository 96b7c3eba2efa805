package openai

import (
	"io/fs"
	"slices"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A Model is what must be known of the model that the upstream runs.
type Model struct {
	ContextLength int // tokens of prompt and answer together
	VocabSize     int // token ids are below this
	EOS           []uint32
	Tokenizer     *tokenizer.Tokenizer
}

// LoadModel reads a Hugging Face directory, of any architecture and without its weights: config.json, tokenizer.json and,
// if it is there, generation_config.json.
func LoadModel(fsys fs.FS) (*Model, error) {
	config, err := beside.LoadConfig(fsys)
	if err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(fsys, "tokenizer.json")
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(data)
	if err != nil {
		return nil, err
	}
	return &Model{
		ContextLength: config.Context, VocabSize: max(config.Vocab, tok.VocabSize()), EOS: config.EOS, Tokenizer: tok,
	}, nil
}

// spell returns the text that a server reads as these ids, given that it puts before and behind a text what tokenizer.json
// says. Not all ids have one: those that decode to the text of others do not.
func (m *Model) spell(prompt []uint32) (string, error) {
	frame := m.Tokenizer.Encode("", true) // mostly the token that begins every text, or nothing
	for n := range len(frame) + 1 {       // how many of them stand before the text
		before, behind := frame[:n], frame[n:]
		if len(prompt) < len(frame) || !slices.Equal(prompt[:n], before) || !slices.Equal(prompt[len(prompt)-len(behind):], behind) {
			continue
		}
		text := m.Tokenizer.Decode(prompt[n:len(prompt)-len(behind)], false)
		if slices.Equal(m.Tokenizer.Encode(text, true), prompt) {
			return text, nil
		}
	}
	return "", streamerr.InvalidParam("prompt", "the server that generates takes text alone, and no text has exactly these tokens")
}
