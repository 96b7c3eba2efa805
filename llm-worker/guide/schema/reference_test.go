package schema

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the tables into docs/reference/openai.md instead of comparing them")

const (
	tablesBegin = "<!-- tables: keywords of JSON Schema, which `go test ./llm-worker/guide/schema -rewrite` makes -->\n"
	tablesEnd   = "<!-- end of tables -->\n"
)

// TestDocsListTheKeywords keeps the tables of docs/reference/openai.md.
func TestDocsListTheKeywords(t *testing.T) {
	file := filepath.Join("..", "..", "..", "docs", "reference", "openai.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), tablesBegin)
	got, after, ends := strings.Cut(rest, tablesEnd)
	if !begins || !ends {
		t.Fatalf("docs/reference/openai.md has no place for the tables between %q and %q", tablesBegin, tablesEnd)
	}
	if want := reference(); got != want && *rewrite {
		if err := os.WriteFile(file, []byte(before+tablesBegin+want+tablesEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("docs/reference/openai.md does not have these tables; run go test ./llm-worker/guide/schema -rewrite\n%s", want)
	}
}

// reference returns the tables.
func reference() string {
	var b strings.Builder
	b.WriteString("| keyword | limits |\n|---|---|\n")
	for _, k := range Keywords {
		row(&b, k.Name, k.Limits)
	}
	b.WriteString("\n| `format` | limits |\n|---|---|\n")
	for _, f := range Formats {
		row(&b, f.Name, f.Limits)
	}
	b.WriteString("\nThese keywords do not affect validity, and are ignored: `" + strings.Join(Annotations, "`, `") + "`.\n")
	return b.String()
}

func row(b *strings.Builder, name, limits string) {
	fmt.Fprintln(b, strings.Replace("| `"+name+"` | "+limits+" |", "|  |", "| |", 1))
}

// TestEveryKeywordIsEnforcedOrIgnored asks the compiler about each listed keyword, with a value that
// only format and const take.
func TestEveryKeywordIsEnforcedOrIgnored(t *testing.T) {
	for _, k := range Keywords {
		if _, err := NewCompiler().Compile(`{"type":["object","array","string","number"],"` + k.Name + `":{"$":0}}`); (err == nil) != (k.Name == "format" || k.Name == "const") {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
	for _, name := range append([]string{"x-name"}, Annotations...) {
		if _, err := NewCompiler().Compile(`{"` + name + `":{"$":0}}`); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
