package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

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

// tokenIDs is an id, a list of ids, or null.
type tokenIDs []uint32

func (ids *tokenIDs) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && (b[0] == '[' || bytes.Equal(b, []byte("null"))) {
		return json.Unmarshal(b, (*[]uint32)(ids))
	}
	*ids = make([]uint32, 1)
	return json.Unmarshal(b, &(*ids)[0])
}

// A textConfig is the part of config.json that is about text; models that see have it in a section of its own.
type textConfig struct {
	Context int      `json:"max_position_embeddings"`
	Vocab   int      `json:"vocab_size"`
	EOS     tokenIDs `json:"eos_token_id"`
}

// LoadModel reads a Hugging Face directory, of any architecture and without its weights: config.json, tokenizer.json and,
// if it is there, generation_config.json.
func LoadModel(fsys fs.FS) (*Model, error) {
	var config struct {
		textConfig
		Text textConfig `json:"text_config"`
	}
	if err := readJSON(fsys, "config.json", &config); err != nil {
		return nil, err
	}
	var generation struct {
		EOS tokenIDs `json:"eos_token_id"`
	}
	if err := readJSON(fsys, "generation_config.json", &generation); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	m := &Model{
		ContextLength: max(config.Context, config.Text.Context),
		VocabSize:     max(config.Vocab, config.Text.Vocab, tok.VocabSize()),
		Tokenizer:     tok,
	}
	if m.ContextLength <= 0 {
		return nil, errors.New("config.json: max_position_embeddings is missing")
	}
	for _, ids := range []tokenIDs{generation.EOS, config.EOS, config.Text.EOS} {
		if len(ids) > 0 {
			m.EOS = slices.Compact(slices.Sorted(slices.Values(ids)))
			break
		}
	}
	return m, nil
}

func readJSON(fsys fs.FS, name string, into any) error {
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("parse %s: %w", name, err)
	}
	return nil
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
