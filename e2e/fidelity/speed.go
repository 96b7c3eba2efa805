package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// kinds are the kinds of measured texts, in the order of the table.
var kinds = []string{"English", "multilingual", "code"}

// rounds is the number of times that each text is encoded. The best round counts, because other
// work may share the cores.
const rounds = 5

// A speedRow has the encoding speed of one core, in MB/s.
type speedRow struct {
	family, kind   string
	ours, rust, js float64
}

type speedQuestion struct {
	Rounds int                 `json:"rounds"`
	Texts  map[string][]string `json:"texts"`
}

// compareSpeed measures all three tokenizers on the same texts: ours before and after the others, so that
// a change of the machine's load shows in both.
func compareSpeed(ctx context.Context, packages string, f family, texts map[string][]string) ([]speedRow, error) {
	tok, err := f.tokenizer()
	if err != nil {
		return nil, err
	}
	rows := make([]speedRow, len(kinds))
	measure := func() {
		for i, kind := range kinds {
			size := 0
			for _, text := range texts[kind] {
				size += len(text)
			}
			for range rounds {
				begun := time.Now()
				for _, text := range texts[kind] {
					tok.Encode(text, false)
				}
				rows[i].ours = max(rows[i].ours, float64(size)/1e6/time.Since(begun).Seconds())
			}
		}
	}
	measure()
	var theirs map[string]struct{ Rust, JS float64 }
	if err := ask(ctx, node(speedScript, packages, f.tokenizerFile()), speedQuestion{rounds, texts}, &theirs); err != nil {
		return nil, err
	}
	measure()
	for i, kind := range kinds {
		rows[i].family, rows[i].kind = f.name, kind
		rows[i].rust, rows[i].js = theirs[kind].Rust, theirs[kind].JS
	}
	return rows, nil
}

// speedTexts returns the documents and the Go code of this repository, and sentences in many
// languages, at most half a megabyte of each.
func speedTexts(root string, seed uint64) (map[string][]string, error) {
	const most = 1 << 19
	texts := map[string][]string{}
	sizes := map[string]int{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "gen") {
			return filepath.SkipDir
		}
		kind := map[string]string{".md": "English", ".go": "code"}[filepath.Ext(path)]
		if kind == "" || sizes[kind] > most {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sizes[kind] += len(text)
		texts[kind] = append(texts[kind], string(text))
		return nil
	})
	w := newWriter(seed)
	for size := 0; size < most; {
		text := w.join(20, 0, w.sentence, "\n")
		texts["multilingual"] = append(texts["multilingual"], text)
		size += len(text)
	}
	return texts, err
}

func speedTable(rows []speedRow) string {
	var b strings.Builder
	b.WriteString("| family | text | ours, MB/s | Rust | JavaScript | ours : Rust | ours : JavaScript |\n|---|---|--:|--:|--:|--:|--:|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %.1f | %.1f | %.1f | %.2f | %.2f |\n", r.family, r.kind, r.ours, r.rust, r.js, r.ours/r.rust, r.ours/r.js)
	}
	return b.String()
}
