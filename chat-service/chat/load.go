package chat

import (
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// Load reads a model from a Hugging Face directory: config.json, tokenizer.json and tokenizer_config.json.
func Load(fsys fs.FS, name, ownedBy string) (*Model, error) {
	var config struct {
		ContextLength int `json:"max_position_embeddings"`
	}
	b, err := fs.ReadFile(fsys, "config.json")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &config); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	if config.ContextLength <= 0 {
		return nil, fmt.Errorf("config.json: max_position_embeddings is %d", config.ContextLength)
	}
	b, err = fs.ReadFile(fsys, "tokenizer.json")
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(b)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	sum, err := tokenizer.Checksum(b)
	if err != nil {
		return nil, err
	}
	tmpl, err := prompt.Load(fsys)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return &Model{
		Name: name, OwnedBy: ownedBy, ContextLength: config.ContextLength, Tokenizer: tok, Checksum: sum, Render: tmpl.Render,
		Written: writtenBy(tmpl, tok),
	}, nil
}
