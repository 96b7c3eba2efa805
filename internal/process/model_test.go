package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestModelIsADirectoryOrAGGUFFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(dir, "broken.gguf")
	if err := os.WriteFile(broken, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "whencetiny", "testdata", "model-f32.gguf")
	for _, good := range []string{"", dir, file} {
		if err := CheckModel(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	if err := CheckModel(file, "tekken.json", "tokenizer.json"); err != nil {
		t.Error(err)
	}
	if err := CheckModel(dir, "tokenizer.json", "tekken.json"); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Error(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "none", filepath.Join(dir, "none.gguf"): "none.gguf", broken: broken,
	} {
		if err := CheckModel(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
