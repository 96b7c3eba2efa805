package tokenizer

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/whence-dev/whence/internal/whencetiny"
)

// A golden has the results of the Rust library, which scripts/goldens-tokenizer wrote.
type golden struct {
	File  string // the tokenizer.json, relative to the golden
	Texts []struct {
		IDs     []uint32
		With    []uint32 // with special tokens added, if that differs
		Decoded *string  // if it differs from the text
	}
	IDs []struct {
		IDs     []uint32
		Text    string
		Skipped *string // without special tokens, if that differs
	}
}

func TestResultsEqualTheRustLibrarys(t *testing.T) {
	dirs := []string{filepath.Join("testdata", "goldens")}
	if dir := os.Getenv("WHENCE_GOLDENS"); dir != "" {
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		var texts []string
		readJSON(t, filepath.Join(dir, "texts.json"), &texts)
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil || len(files) < 2 {
			t.Fatalf("no goldens in %s (%v)", dir, err)
		}
		for _, file := range files {
			if filepath.Base(file) != "texts.json" {
				t.Run(filepath.Base(file), func(t *testing.T) { checkGolden(t, file, texts) })
			}
		}
	}
}

func checkGolden(t *testing.T, file string, texts []string) {
	var want golden
	readJSON(t, file, &want)
	tok := loadFile(t, filepath.Join(filepath.Dir(file), want.File))
	if len(want.Texts) != len(texts) {
		t.Fatalf("%d texts in texts.json, %d here", len(texts), len(want.Texts))
	}
	var encodes, decodes int // mismatches
	for i, w := range want.Texts {
		if got := tok.Encode(texts[i], false); !slices.Equal(got, w.IDs) {
			encodes++
			t.Errorf("Encode(%q)\n got %v\nwant %v", texts[i], got, w.IDs)
		}
		with := w.IDs
		if w.With != nil {
			with = w.With
		}
		if got := tok.Encode(texts[i], true); !slices.Equal(got, with) {
			encodes++
			t.Errorf("Encode(%q, with special tokens)\n got %v\nwant %v", texts[i], got, with)
		}
		decoded := texts[i]
		if w.Decoded != nil {
			decoded = *w.Decoded
		}
		if got := tok.Decode(w.IDs, false); got != decoded {
			decodes++
			t.Errorf("Decode(%v)\n got %q\nwant %q", w.IDs, got, decoded)
		}
	}
	for _, w := range want.IDs {
		if got := tok.Decode(w.IDs, false); got != w.Text {
			decodes++
			t.Errorf("Decode(%v)\n got %q\nwant %q", w.IDs, got, w.Text)
		}
		skipped := w.Text
		if w.Skipped != nil {
			skipped = *w.Skipped
		}
		if got := tok.Decode(w.IDs, true); got != skipped {
			decodes++
			t.Errorf("Decode(%v, without special tokens)\n got %q\nwant %q", w.IDs, got, skipped)
		}
	}
	t.Logf("%d texts, %d lists of ids: %d encode and %d decode mismatches", len(want.Texts), len(want.IDs), encodes, decodes)
}

func readJSON(t testing.TB, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func loadFile(t testing.TB, file string) *Tokenizer {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return load(t, data)
}

func load(t testing.TB, data []byte) *Tokenizer {
	t.Helper()
	tok, err := Load(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// tiny returns the embedded model's tokenizer.
func tiny(t testing.TB) *Tokenizer {
	t.Helper()
	data, err := fs.ReadFile(whencetiny.FS(), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	return load(t, data)
}
