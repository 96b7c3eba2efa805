package beside

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/whence-dev/whence/internal/modelfile"
)

// A Config is the part of a Hugging Face directory that describes the model, for any architecture:
// config.json and, if present, generation_config.json.
type Config struct {
	Context int // tokens of prompt and answer together; 0 if config.json names no limit
	Vocab   int // as in config.json; a tokenizer may have more
	EOS     []uint32
	Images  bool // the model sees images
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

// A textConfig is the part of config.json that describes the text model. Multimodal models have it
// in a section of its own.
type textConfig struct {
	Context int      `json:"max_position_embeddings"`
	Vocab   int      `json:"vocab_size"`
	EOS     tokenIDs `json:"eos_token_id"`
}

// LoadConfig reads the directory.
func LoadConfig(fsys fs.FS) (*Config, error) {
	var config struct {
		textConfig
		Text   textConfig     `json:"text_config"`
		Vision map[string]any `json:"vision_config"`
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
	c := &Config{Context: max(config.Context, config.Text.Context), Vocab: max(config.Vocab, config.Text.Vocab), Images: len(config.Vision) > 0}
	if least := min(config.Context, config.Text.Context); least < 0 {
		return nil, fmt.Errorf("config.json: max_position_embeddings is %d; it must be the context length in tokens", least)
	}
	for _, ids := range []tokenIDs{generation.EOS, config.EOS, config.Text.EOS} {
		if len(ids) > 0 {
			c.EOS = slices.Compact(slices.Sorted(slices.Values(ids)))
			break
		}
	}
	return c, nil
}

func readJSON(fsys fs.FS, name string, into any) error {
	b, err := modelfile.Read(fsys, name, modelfile.MaxOther)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("parse %s: %w", name, err)
	}
	return nil
}
