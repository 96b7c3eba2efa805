package modelfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyRegularFilesOfBoundedSizeAreRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "blob"), []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": "blob", "endless": "/dev/zero", "directory": ".", "itself": "itself"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	direct := os.DirFS(dir)
	for _, fsys := range []fs.FS{direct, struct{ fs.FS }{direct}} {
		readAll(t, fsys)
	}
}

func readAll(t *testing.T, fsys fs.FS) {
	t.Helper()
	for _, name := range []string{"blob", "link"} { // a cache of a hub has links to its files
		if text, err := Read(fsys, name, 10); string(text) != "0123456789" || err != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if _, err := Read(fsys, name, 9); err == nil || !strings.Contains(err.Error(), "at most 9") {
			t.Errorf("%s is too large: %v", name, err)
		}
	}
	for _, name := range []string{"endless", "directory", "itself", "../x"} {
		if text, err := Read(fsys, name, 10); err == nil {
			t.Errorf("%s: %d bytes", name, len(text))
		}
	}
	if _, err := Read(fsys, "none", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
