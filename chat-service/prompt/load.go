package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/whence-dev/whence/internal/modelfile"
)

// The files of a Hugging Face model directory that define prompts. The second is the newer place
// for the template and takes precedence.
const (
	configFile   = "tokenizer_config.json"
	templateFile = "chat_template.jinja"
)

// ErrNoTemplate is the error of Load for a model without a chat template, such as a base model, or one that
// embeds.
var ErrNoTemplate = errors.New("model has no chat template")

// Load compiles the chat template of the Hugging Face model directory fsys. If there are several
// templates, it takes the one named "default". A model need not have tokenizer_config.json.
func Load(fsys fs.FS) (*Template, error) {
	text, err := modelfile.Read(fsys, configFile, modelfile.MaxOther)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte("{}"), nil
	}
	if err != nil {
		return nil, err
	}
	var config struct {
		ChatTemplate chatTemplate `json:"chat_template"`
		BOS          specialToken `json:"bos_token"`
		EOS          specialToken `json:"eos_token"`
		UNK          specialToken `json:"unk_token"`
		PAD          specialToken `json:"pad_token"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	source, from := string(config.ChatTemplate), configFile
	switch file, err := modelfile.Read(fsys, templateFile, modelfile.MaxOther); {
	case err == nil:
		source, from = string(file), templateFile
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if strings.TrimSpace(source) == "" {
		return nil, ErrNoTemplate
	}
	tokens := map[string]string{}
	for name, token := range map[string]specialToken{
		"bos_token": config.BOS, "eos_token": config.EOS, "unk_token": config.UNK, "pad_token": config.PAD,
	} {
		if token != "" {
			tokens[name] = string(token)
		}
	}
	t, err := New(source, tokens)
	if err != nil {
		return nil, fmt.Errorf("%s: chat template: %w", from, err)
	}
	return t, nil
}

// A chatTemplate is a template, or the default template of a list, or empty.
type chatTemplate string

func (c *chatTemplate) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*string)(c)); err == nil {
		return nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(b, &list); err != nil {
		return errors.New("chat_template is neither a string nor a list of templates")
	}
	for _, entry := range list {
		if entry.Name == "default" {
			*c = chatTemplate(entry.Template)
		}
	}
	return nil
}

// A specialToken is a string, or the "content" of an object, or empty. Like transformers, this
// package leaves empty tokens undefined.
type specialToken string

func (s *specialToken) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*string)(s)); err == nil {
		return nil
	}
	var object struct{ Content string }
	if err := json.Unmarshal(b, &object); err != nil {
		return errors.New("special token is neither a string nor an object")
	}
	*s = specialToken(object.Content)
	return nil
}
