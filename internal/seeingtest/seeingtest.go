// Package seeingtest is a model directory for tests of images: the directory of whence-tiny,
// changed as if its model accepted images. None of our engines runs it; the tests' servers claim to
// do so.
package seeingtest

import (
	"bytes"
	"io/fs"
	"testing/fstest"

	"github.com/whence-dev/whence/internal/whencetiny"
)

// Placeholder is the token that represents an image in prompts, and Text is its text.
const (
	Placeholder = 1533
	Text        = "<|endoftext|>"
)

// PNG is the header of an image with one pixel. MediaType is its type.
const (
	PNG       = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU"
	MediaType = "image/png"
	// DataURL is PNG as a data: URL.
	DataURL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptV"
)

const template = `{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' }}` +
	`{%- if message.content is string %}{{- message.content }}{%- else %}` +
	`{%- for part in message.content %}{%- if part.type == 'image' %}{{- '` + Text + `' }}{%- else %}{{- part.text }}{%- endif %}{%- endfor %}` +
	`{%- endif %}{{- '<|im_end|>\n' }}{%- endfor %}` +
	`{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`

// FS returns the directory, without weights.
func FS() fs.FS {
	files := fstest.MapFS{"chat_template.jinja": {Data: []byte(template)}}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		data, err := fs.ReadFile(whencetiny.FS(), name)
		if err != nil {
			panic(err) // the files are embedded
		}
		if name == "config.json" {
			data = bytes.Replace(data, []byte("{"), []byte(`{"image_token_id": 1533, "vision_config": {"patch_size": 14},`), 1)
		}
		files[name] = &fstest.MapFile{Data: data}
	}
	return files
}
