package hub

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/whence-dev/whence/internal/modelfile"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A Store keeps the files of models that servers have described. Each model has a directory with the
// name of a hash of its files. The zero value is in the user's cache directory.
type Store struct{ Dir string }

func (s Store) root() (string, error) {
	if s.Dir != "" {
		return s.Dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache directory for the files of models: %w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(dir, "whence", "models"), nil
}

// save makes a directory with the files, unless it exists, and returns its path. It refuses a model
// that cannot be served.
func (s Store) save(files map[string][]byte) (path string, err error) {
	if err := check(files); err != nil {
		return "", err
	}
	root, err := s.root()
	if err != nil {
		return "", err
	}
	path = filepath.Join(root, hashOf(files))
	if holds(path, files) {
		return path, nil
	}
	temporary := path + "." + unique() + ".tmp"
	if err := write(temporary, files); err != nil {
		return "", errors.Join(explainDisk(err), os.RemoveAll(temporary))
	}
	err = os.Rename(temporary, path)
	if err != nil && !holds(path, files) { // the files there were changed
		if err = os.RemoveAll(path); err == nil {
			err = os.Rename(temporary, path)
		}
	}
	if holds(path, files) { // another process may have been faster
		err = nil
	}
	return path, errors.Join(explainDisk(err), os.RemoveAll(temporary))
}

func write(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func hashOf(files map[string][]byte) string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, part := range [][]byte{[]byte(name), files[name]} {
			_ = binary.Write(sum, binary.LittleEndian, int64(len(part))) // never fails
			_, _ = sum.Write(part)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// holds reports whether a directory has exactly the files.
func holds(dir string, files map[string][]byte) bool {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(files) {
		return false
	}
	for name, content := range files {
		if text, err := modelfile.Read(os.DirFS(dir), name, limit(name)); err != nil || !bytes.Equal(text, content) {
			return false
		}
	}
	return true
}

// A fileMap is the directory of files in memory.
type fileMap map[string][]byte

// ReadFile implements fs.ReadFileFS.
func (m fileMap) ReadFile(name string) ([]byte, error) {
	if content, ok := m[name]; ok {
		return content, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// Open implements fs.FS, for readers that need no more than the error.
func (m fileMap) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// check refuses files without a configuration or a tokenizer that works.
func check(files map[string][]byte) error {
	if _, ok := files[configFile]; !ok {
		return errors.New("the server's files have no " + configFile)
	}
	source, err := tokenizer.Open(fileMap(files))
	if err == nil {
		_, err = source.Tokenizer()
	}
	if err != nil {
		return fmt.Errorf("the server's tokenizer cannot be read: %w", err)
	}
	return nil
}

// wanted are the files of a model that are read.
func wanted() []string { return slices.Concat(settings, tokenizer.Files()) }

// readAll returns the files of a directory that are read.
func readAll(dir fs.FS) (files map[string][]byte, err error) {
	files = map[string][]byte{}
	for _, name := range wanted() {
		content, err := modelfile.Read(dir, name, limit(name))
		switch {
		case err == nil:
			files[name] = content
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return files, nil
}

// Bounds of an archive.
const (
	maxArchive = modelfile.MaxTokenizer
	maxEntries = 1000
)

// SaveArchive keeps the files of a zip archive that a server has sent, and returns the path of the
// directory. sum is the SHA-256 of the archive, or "".
func (s Store) SaveArchive(archive []byte, sum string) (path string, err error) {
	if got := sha256.Sum256(archive); sum != "" && hex.EncodeToString(got[:]) != sum {
		return "", fmt.Errorf("the server's archive has the checksum %x instead of %.64s", got, sum)
	}
	if len(archive) > maxArchive {
		return "", fmt.Errorf("the server's archive has %d bytes; at most %d are allowed", len(archive), maxArchive)
	}
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return "", fmt.Errorf("the server's archive cannot be read: %w", err)
	}
	if len(r.File) > maxEntries {
		return "", fmt.Errorf("the server's archive has %d files; at most %d are allowed", len(r.File), maxEntries)
	}
	files, known := map[string][]byte{}, wanted()
	for _, f := range r.File {
		if !slices.Contains(known, f.Name) { // also all names with a directory
			continue
		}
		if _, twice := files[f.Name]; twice {
			return "", fmt.Errorf("the server's archive has %s twice", f.Name)
		}
		if files[f.Name], err = unpack(f); err != nil {
			return "", fmt.Errorf("the server's archive: %s: %w", f.Name, err)
		}
	}
	return s.save(files)
}

// unpack returns the content of a file of an archive, which may claim a wrong size.
func unpack(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read
	most := limit(f.Name)
	content, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return content, err
}
