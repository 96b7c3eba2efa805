// Package whencetiny embeds whence-tiny, a chat model of 1.1 million parameters made for this
// project, so that the whole path can run on a fresh machine without a download.
//
// README.md in this directory describes the training and the abilities of the model. EVAL.md
// describes its quality.
package whencetiny

import (
	"embed"
	"io/fs"
)

// Name is the model's name in requests, Owner its author.
const (
	Name  = "whence-tiny"
	Owner = "whence"
)

//go:embed model/config.json model/generation_config.json model/model.safetensors model/tokenizer.json model/tokenizer_config.json
var files embed.FS

// FS returns the model as a Hugging Face directory: config.json, generation_config.json,
// model.safetensors (BF16), tokenizer.json and tokenizer_config.json.
func FS() fs.FS {
	sub, err := fs.Sub(files, "model")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return sub
}
