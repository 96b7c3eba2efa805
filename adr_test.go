package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIndexListsEveryDecision keeps docs/adr/README.md complete: one line per decision, with the
// title of its file.
func TestIndexListsEveryDecision(t *testing.T) {
	index, err := os.ReadFile("docs/adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("docs/adr/[0-9]*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d decisions: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		heading, _, _ := strings.Cut(string(text), "\n")
		number, title, ok := strings.Cut(strings.TrimPrefix(heading, "# "), ". ")
		if !ok {
			t.Errorf("%s: the first line must be \"# NUMBER. TITLE\", not %q", file, heading)
			continue
		}
		if want := "| [" + number + "](" + filepath.Base(file) + ") | " + title + " |"; !strings.Contains(string(index), want) {
			t.Errorf("docs/adr/README.md lacks the line %q", want)
		}
	}
}
