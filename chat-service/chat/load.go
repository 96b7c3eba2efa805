package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/internal/modelfile"
	"github.com/whence-dev/whence/pkg/streamerr"
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

// Load reads a model from a Hugging Face directory: config.json, the tokenizer and, if present,
// tokenizer_config.json. ContextLength is 0 if config.json names none: some architectures have no limit. A
// model without a chat template answers everything but chats.
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
	m := &Model{Name: name, OwnedBy: ownedBy, ContextLength: context, Tokenizer: tok, Checksum: sum, ImageToken: cmp.Or(config.ID, config.Index)}
	tmpl, err := prompt.Load(fsys)
	switch {
	case errors.Is(err, prompt.ErrNoTemplate):
		m.Render, m.Conversation = m.refuseChats, m.refuseChats
		return m, nil
	case err != nil:
		return nil, fmt.Errorf("chat template: %w", err)
	}
	m.HasTemplate, m.Render, m.Conversation = true, tmpl.Render, tmpl.Conversation
	m.Markup, m.Traits, m.PlacesImages = markupOf(tmpl, tok), tmpl.Traits(), tmpl.ShowsImages()
	tmpl.Model, tmpl.Around = name, func(tool string) (before, after string) { return m.Markup.aroundArguments(tool) }
	return m, nil
}

// refuseChats is the Renderer of a model without a chat template.
func (m *Model) refuseChats(context.Context, prompt.Input) (string, error) {
	return "", streamerr.InvalidParam("messages", "%s has no chat template, so it answers completions of text (/v1/completions), and no chats; a template is in the model's directory, or named by the key template in the file of --models", m.Name).
		WithCode(streamerr.CodeUnsupportedField)
}
