package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/whence-dev/whence/internal/modelfile"
)

// A Shard is one file of the weights of a Hugging Face model.
type Shard struct {
	File string
	// names are the tensors that the index assigns to the file; nil without an index, and then all
	// tensors count.
	names map[string]bool
}

// FindShards returns the files of weights in a directory. It prefers a whole file to an index, as
// Hugging Face does.
func FindShards(fsys fs.FS) ([]Shard, error) {
	const whole, index = "model.safetensors", "model.safetensors.index.json"
	_, err := fs.Stat(fsys, whole)
	if err == nil {
		return []Shard{{File: whole}}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	b, err := modelfile.Read(fsys, index, modelfile.MaxOther)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is neither %s nor %s: %w", whole, index, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	var j struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return nil, fmt.Errorf("parse %s: %w", index, err)
	}
	files := map[string]map[string]bool{}
	for name, file := range j.WeightMap {
		if !fs.ValidPath(file) {
			return nil, fmt.Errorf("%s names the file %q", index, file)
		}
		if files[file] == nil {
			files[file] = map[string]bool{}
		}
		files[file][name] = true
	}
	var shards []Shard
	for file, names := range files {
		shards = append(shards, Shard{file, names})
	}
	slices.SortFunc(shards, func(a, b Shard) int { return strings.Compare(a.File, b.File) })
	return shards, nil
}

// Each calls visit for the shard's tensors in the order of the file. visit may read the tensor from
// r or ignore it.
func (s Shard) Each(fsys fs.FS, visit func(t Tensor, r io.Reader) error) error {
	f, err := fsys.Open(s.File)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	tensors, err := ReadHeader(f, info.Size())
	if err != nil {
		return err
	}
	for _, t := range tensors {
		data := &io.LimitedReader{R: f, N: t.End - t.Begin}
		if s.names == nil || s.names[t.Name] {
			if err := visit(t, data); err != nil {
				return err
			}
		}
		if err := skip(f, data.N); err != nil {
			return fmt.Errorf("read tensor %q: %w", t.Name, err)
		}
	}
	return nil
}

// skip skips n bytes: by seeking if the file can, otherwise by reading.
func skip(f fs.File, n int64) error {
	if s, ok := f.(io.Seeker); ok {
		_, err := s.Seek(n, io.SeekCurrent)
		return err
	}
	_, err := io.CopyN(io.Discard, f, n)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
