// Package modelfile reads the small files of a model directory, such as config.json. They come from a
// hub, and nothing about them is trusted: a name may be a link to a device that never ends, or to a
// file that does not fit into memory.
package modelfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Bounds of files, in bytes. The largest tokenizer.json of a known model has 35 MB, and the largest
// other file less than 2 MB.
const (
	MaxTokenizer = 256 << 20
	MaxOther     = 32 << 20
)

// Read returns the content of a file. It refuses what is not a regular file, or has more than limit
// bytes.
func Read(fsys fs.FS, name string, limit int64) ([]byte, error) {
	if _, direct := fsys.(fs.ReadFileFS); direct { // it may have content of its own for the name
		info, err := fs.Stat(fsys, name)
		if err == nil {
			err = check(name, info, limit)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return fs.ReadFile(fsys, name)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err == nil {
		err = check(name, info, limit)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

func check(name string, info fs.FileInfo, limit int64) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", name)
	case info.Size() > limit:
		return fmt.Errorf("%s has %d bytes; at most %d are allowed", name, info.Size(), limit)
	}
	return nil
}
