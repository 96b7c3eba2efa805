package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/whence-dev/whence/pkg/tokenizer"
	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// filesPython is the Python of the programs whose file formats are compared. It does not exist where
// the programs cannot be installed.
func filesPython(packages string) string { return filepath.Join(packages, "python", "bin", "python3") }

func hasPrograms(packages string) bool {
	_, err := os.Stat(filesPython(packages))
	return err == nil
}

type filesQuestion struct {
	Texts      [][]byte          `json:"texts"`
	Directory  string            `json:"directory"`
	Vocabulary string            `json:"vocabulary"` // a tokenizer.json whose ids are ranks
	Patterns   map[string]string `json:"patterns"`
}

type filesAnswer struct {
	Name, Directory string
	Texts           []string
	IDs             [][]uint32
}

// A fileRow has the results of comparing one file.
type fileRow struct {
	name       string
	texts      int
	mismatches int
	first      []string
}

func (r *fileRow) differences() []string { return r.first }

func (r *fileRow) complain(format string, args ...any) {
	if len(r.first) < 5 {
		r.first = append(r.first, r.name+": "+fmt.Sprintf(format, args...))
	}
}

// compareFiles compares the tokenizers of files in other formats than tokenizer.json.
func compareFiles(ctx context.Context, packages string, n int, seed uint64) ([]*fileRow, error) {
	dir, err := os.MkdirTemp("", "fidelity")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	q := filesQuestion{
		Directory:  dir,
		Vocabulary: filepath.Join(packages, "node_modules", "@lenml", "tokenizer-gptoss", "models", "tokenizer.json"),
		Patterns:   map[string]string{"kimi": pattern.Kimi, "o200k": pattern.O200K, "qwen": pattern.Qwen},
	}
	w := newWriter(seed)
	for _, text := range w.texts(n) {
		q.Texts = append(q.Texts, []byte(text))
	}
	var answers []filesAnswer
	if err := ask(ctx, []string{filesPython(packages), "-c", filesScript}, q, &answers); err != nil {
		return nil, err
	}
	var rows []*fileRow
	for _, a := range answers {
		row, err := compareFile(a)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func compareFile(a filesAnswer) (*fileRow, error) {
	source, err := tokenizer.Open(os.DirFS(a.Directory))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Name, err)
	}
	tok, err := source.Tokenizer()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Name, err)
	}
	r := &fileRow{name: a.Name, texts: len(a.Texts)}
	for i, text := range a.Texts {
		if got := tok.Encode(text, false); !slices.Equal(got, a.IDs[i]) {
			r.mismatches++
			r.complain("%.300q\n got %v\nwant %v", text, got, a.IDs[i])
		}
	}
	return r, nil
}

func fileTable(rows []*fileRow) string {
	var b strings.Builder
	b.WriteString("| file | texts | encode mismatches |\n|---|--:|--:|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", r.name, r.texts, r.mismatches)
	}
	return b.String() + differences(rows)
}
