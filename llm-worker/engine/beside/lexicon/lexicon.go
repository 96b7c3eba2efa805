// Package lexicon describes a model whose server takes or returns text instead of token ids: its
// tokenizer, and the conversions from ids to the server's text and back.
package lexicon

import (
	"io/fs"
	"slices"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A Model is the worker's description of the model that its server runs.
type Model struct {
	Name          string // of the files, for messages; "" if unknown
	ContextLength int    // tokens of prompt and answer together; 0 if config.json names no limit
	VocabSize     int    // token ids are below VocabSize
	EOS           []uint32
	Tokenizer     *tokenizer.Tokenizer
	Images        bool // the model sees images

	least int // tokens that a server's vocabulary has at least: config.json and tokenizers may count differently
}

// Load reads a Hugging Face directory of any architecture, without weights: config.json,
// the tokenizer and, if present, generation_config.json.
func Load(fsys fs.FS) (*Model, error) {
	config, err := beside.LoadConfig(fsys)
	if err != nil {
		return nil, err
	}
	source, err := tokenizer.Open(fsys)
	if err != nil {
		return nil, err
	}
	tok, err := source.Tokenizer()
	if err != nil {
		return nil, err
	}
	m := &Model{
		ContextLength: config.Context, VocabSize: max(config.Vocab, tok.VocabSize()), EOS: config.EOS, Tokenizer: tok, Images: config.Images,
		least: tok.VocabSize(),
	}
	if config.Vocab > 0 {
		m.least = min(m.least, config.Vocab)
	}
	return m, nil
}

// Spell returns the text that a server tokenizes to exactly these ids, given that the server adds
// the tokens of the tokenizer's template around a text. Not all ids have such a text: ids that
// decode to the text of other ids have none.
func (m *Model) Spell(prompt []uint32) (string, error) {
	frame := m.Tokenizer.Encode("", true) // usually the token that begins every text, or nothing
	for n := range len(frame) + 1 {       // n is the number of template tokens in front of the text
		before, behind := frame[:n], frame[n:]
		if len(prompt) < len(frame) || !slices.Equal(prompt[:n], before) || !slices.Equal(prompt[len(prompt)-len(behind):], behind) {
			continue
		}
		text := m.Tokenizer.Decode(prompt[n:len(prompt)-len(behind)], false)
		if slices.Equal(m.Tokenizer.Encode(text, true), prompt) {
			return text, nil
		}
	}
	return "", streamerr.InvalidParam("prompt", "the server that generates takes only text, and no text has exactly these tokens")
}

// TrialPrompt returns the prompt of a trial. Without a model, it is a token that every vocabulary has.
func (m *Model) TrialPrompt() []uint32 {
	if m == nil {
		return []uint32{33}
	}
	return m.Tokenizer.Encode(beside.TrialPrompt, true)
}

// Text returns the text of ids, special tokens included, or "" if an id is not in the vocabulary.
func (m *Model) Text(ids []uint32) string {
	if slices.ContainsFunc(ids, func(id uint32) bool { return int64(id) >= int64(m.Tokenizer.VocabSize()) }) {
		return ""
	}
	return m.Tokenizer.Decode(ids, false)
}

// Texts returns the function that returns the text of the ids of an answer; nil without a model.
func (m *Model) Texts() func(ids []uint32) string {
	if m == nil {
		return nil
	}
	return func(ids []uint32) string { return m.Tokenizer.Decode(ids, true) }
}

// Config returns the part of the description that needs no tokenizer.
func (m *Model) Config() *beside.Config {
	return &beside.Config{Context: m.ContextLength, Vocab: m.VocabSize, EOS: m.EOS, Images: m.Images}
}
