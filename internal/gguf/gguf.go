// Package gguf makes a GGUF file, the format of llama.cpp, look like a Hugging Face model directory,
// so that one file can be loaded wherever a directory can.
//
// The directory has config.json, generation_config.json, tokenizer.json, tokenizer_config.json and
// model.safetensors. All of them are made from the GGUF file. Weights are converted as they are
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
	if isFile(path) {
		name = name[:len(name)-len(Extension)]
	}
	return name
}

func isFile(path string) bool { return strings.EqualFold(filepath.Ext(path), Extension) }

// Directory returns the model directory at path, which is a Hugging Face directory or a GGUF file.
// The error of a GGUF file names the file.
func Directory(path string) (fs.FS, error) {
	if !isFile(path) {
		return os.DirFS(path), nil
	}
	m, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// A model is the directory that a GGUF file looks like. It keeps no file open.
type model struct {
	path    string
	header  *header
	info    fs.FileInfo
	family  family
	weights *layout
}

func open(path string) (*model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	h, err := readHeader(f, info.Size())
	if err != nil {
		return nil, err
	}
	m := &model{path: path, header: h, info: info}
	if m.family, err = h.family(); err != nil {
		return nil, err
	}
	m.weights, err = h.layout(m.family)
	return m, err
}

// besides are the files that take precedence if they exist beside the GGUF file.
var besides = []string{"generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}

// Open implements fs.FS.
func (m *model) Open(name string) (fs.File, error) {
	if slices.Contains(besides, name) {
		f, err := os.Open(filepath.Join(filepath.Dir(m.path), name))
		if err == nil || !os.IsNotExist(err) {
			return f, err
		}
	}
	var b []byte
	var err error
	switch name {
	case "model.safetensors":
		f, err := os.Open(m.path)
		if err != nil {
			return nil, err
		}
		return &weightsFile{info: m.describe(name, m.weights.size()), file: f, layout: m.weights}, nil
	case "config.json":
		b, err = m.config()
	case "generation_config.json":
		b, err = m.generation()
	case "tokenizer.json":
		b, err = m.tokenizer()
	case "tokenizer_config.json":
		b, err = m.tokenizerConfig()
	default:
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &textFile{Reader: bytes.NewReader(b), info: m.describe(name, int64(len(b)))}, nil
}

func (m *model) describe(name string, size int64) fs.FileInfo {
	return info{name, size, m.info.ModTime()}
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
