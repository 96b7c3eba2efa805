// Package gguf makes a GGUF file, the format of llama.cpp, look like a Hugging Face model directory,
// so that one file can be loaded wherever a directory can.
//
// The directory has config.json, generation_config.json, tokenizer.json or tokenizer.model,
// tokenizer_config.json and model.safetensors. All of them are made from the GGUF file. Weights are converted as they are
// read: quantized tensors become F32, others stay as they are. A file beside the GGUF file with the
// name of one of the tokenizer's files, or with a chat template, takes precedence.
//
// Nothing in a file is trusted: each size is checked against the length of the file. Everything that would
// silently change answers is refused by name: unknown tensors, formats, tokenizers and
// architectures.
package gguf

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Extension is the extension of GGUF files.
const Extension = ".gguf"

// Name returns the name of the model at path: that of the directory, or of the GGUF file without its
// extension.
func Name(path string) string {
	name := filepath.Base(path)
	if IsFile(path) {
		name = name[:len(name)-len(Extension)]
	}
	return name
}

// IsFile reports whether path names a GGUF file.
func IsFile(path string) bool { return strings.EqualFold(filepath.Ext(path), Extension) }

// Directory returns the model directory at path, which is a Hugging Face directory or a GGUF file.
// The error of a GGUF file names the file.
func Directory(path string) (fs.FS, error) { return directory(path, true) }

// Description is Directory without the weights of a GGUF file: it reads only the metadata. So
// the file may have any architecture, formats and parts.
func Description(path string) (fs.FS, error) { return directory(path, false) }

// DescriptionOf is Description of a GGUF file of any name.
func DescriptionOf(file string) (fs.FS, error) { return load(file, false) }

func directory(path string, weights bool) (fs.FS, error) {
	if !IsFile(path) {
		return os.DirFS(path), nil
	}
	return load(path, weights)
}

func load(path string, weights bool) (fs.FS, error) {
	m, err := open(path, weights)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// A model is the directory that a GGUF file looks like. It keeps no file open.
type model struct {
	path    string // "" if there is no file, and nothing beside it
	header  *header
	time    time.Time
	family  family  // not of a description
	weights *layout // nil in a description
}

func open(path string, weights bool) (*model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	d := newDecoder(f, info.Size())
	h, tensors, err := d.metadata()
	if err != nil {
		return nil, err
	}
	m := &model{path: path, header: h, time: info.ModTime()}
	if !weights {
		return m, nil
	}
	if err := d.tensors(h, tensors, info.Size()); err != nil {
		return nil, err
	}
	if m.family, err = h.family(); err != nil {
		return nil, err
	}
	m.weights, err = h.layout(m.family)
	return m, err
}

// besides are the files that take precedence if they exist beside the GGUF file.
var besides = []string{"generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja"}

// Open implements fs.FS.
func (m *model) Open(name string) (fs.File, error) {
	if m.path != "" && slices.Contains(besides, name) {
		f, err := os.Open(filepath.Join(filepath.Dir(m.path), name))
		if err == nil || !os.IsNotExist(err) {
			return f, err
		}
	}
	if name == "model.safetensors" && m.weights != nil {
		f, err := os.Open(m.path)
		if err != nil {
			return nil, err
		}
		return &weightsFile{info: m.describe(name, m.weights.size()), file: f, layout: m.weights}, nil
	}
	b, err := m.text(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &textFile{Reader: bytes.NewReader(b), info: m.describe(name, int64(len(b)))}, nil
}

// text makes a file from metadata.
func (m *model) text(name string) ([]byte, error) {
	pieces := m.header.text("tokenizer.ggml.model") == sentencePiece
	switch {
	case name == "config.json" && m.weights == nil:
		return m.outline()
	case name == "config.json":
		return m.config()
	case name == "generation_config.json":
		return m.generation()
	case name == "tokenizer.json" && !pieces:
		return m.tokenizer()
	case name == "tokenizer.model" && pieces:
		return m.pieces()
	case name == "tokenizer_config.json":
		return m.tokenizerConfig()
	}
	return nil, fs.ErrNotExist
}

func (m *model) describe(name string, size int64) fs.FileInfo {
	return info{name, size, m.time}
}

// A textFile is a file that has been made from metadata.
type textFile struct {
	*bytes.Reader
	info fs.FileInfo
}

func (f *textFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *textFile) Close() error               { return nil }

// info describes a file of the directory.
type info struct {
	name string
	size int64
	time time.Time
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return 0o444 }
func (i info) ModTime() time.Time { return i.time }
func (i info) IsDir() bool        { return false }
func (i info) Sys() any           { return nil }

var (
	_ fs.FS     = (*model)(nil)
	_ io.Seeker = (*weightsFile)(nil)
)
