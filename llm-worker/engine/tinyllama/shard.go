package tinyllama

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/safetensors"
)

// A shard is one file of weights.
type shard struct {
	file string
	// names are the tensors that the index assigns to the file; nil without an index, and then all
	// tensors count.
	names map[string]bool
}

// findShards prefers a whole file to an index, as Hugging Face does.
func findShards(fsys fs.FS) ([]shard, error) {
	const whole, index = "model.safetensors", "model.safetensors.index.json"
	_, err := fs.Stat(fsys, whole)
	if err == nil {
		return []shard{{file: whole}}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	b, err := fs.ReadFile(fsys, index)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is neither %s nor %s", whole, index)
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
	var shards []shard
	for file, names := range files {
		shards = append(shards, shard{file, names})
	}
	slices.SortFunc(shards, func(a, b shard) int { return strings.Compare(a.file, b.file) })
	return shards, nil
}

// each calls visit for the shard's tensors in the order of the file. visit may read the tensor from
// r or ignore it.
func (s shard) each(fsys fs.FS, visit func(t safetensors.Tensor, r io.Reader) error) error {
	f, err := fsys.Open(s.file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	tensors, err := safetensors.ReadHeader(f, info.Size())
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
