package chat

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/internal/modelfile"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// imageConfig is the part of config.json about the token that stands for an image in prompts. Its
// name depends on the model.
type imageConfig struct {
	ID    *uint32 `json:"image_token_id"`
	Index *uint32 `json:"image_token_index"`
}

// textConfig is the part of config.json about the text model. Multimodal models have it in an
// object of its own.
type textConfig struct {
	ContextLength int `json:"max_position_embeddings"`
}

// Load reads a model from a Hugging Face directory: config.json, the tokenizer and
// tokenizer_config.json. ContextLength is 0 if config.json names none: some architectures have no limit.
func Load(fsys fs.FS, name, ownedBy string) (*Model, error) {
	var config struct {
		textConfig
		imageConfig
		Text textConfig `json:"text_config"`
	}
	b, err := modelfile.Read(fsys, "config.json", modelfile.MaxOther)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &config); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	context := cmp.Or(config.ContextLength, config.Text.ContextLength)
	if context < 0 {
		return nil, fmt.Errorf("config.json: max_position_embeddings is %d; it must be the context length in tokens", context)
	}
	source, err := tokenizer.Open(fsys)
	if err != nil {
		return nil, err
	}
	tok, err := source.Tokenizer()
	if err != nil {
		return nil, err
	}
	sum, err := source.Checksum()
	if err != nil {
		return nil, err
	}
	tmpl, err := prompt.Load(fsys)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	m := &Model{
		Name: name, OwnedBy: ownedBy, ContextLength: context, Tokenizer: tok, Checksum: sum, Render: tmpl.Render,
		Markup: markupOf(tmpl, tok), Conversation: tmpl.Conversation, Traits: tmpl.Traits(), PlacesImages: tmpl.ShowsImages(), ImageToken: cmp.Or(config.ID, config.Index),
	}
	tmpl.Model, tmpl.Around = name, func(tool string) (before, after string) { return m.Markup.aroundArguments(tool) }
	return m, nil
}
