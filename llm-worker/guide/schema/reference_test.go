package schema

import (
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/doctable"
)

var rewrite = flag.Bool("rewrite", false, "write the tables into docs/reference/openai.md instead of comparing them")

const (
	tablesBegin = "<!-- tables: keywords of JSON Schema, which `go test ./llm-worker/guide/schema -rewrite` makes -->\n"
	tablesEnd   = "<!-- end of tables -->\n"
)

// TestDocsListTheKeywords keeps the tables of docs/reference/openai.md.
func TestDocsListTheKeywords(t *testing.T) {
	doctable.Keep(t, filepath.Join("..", "..", "..", "docs", "reference", "openai.md"), tablesBegin, tablesEnd, reference(), *rewrite, "go test ./llm-worker/guide/schema -rewrite")
}

// reference returns the tables.
func reference() string {
	var b strings.Builder
	b.WriteString("| keyword | limits |\n|---|---|\n")
	for _, k := range Keywords {
		row(&b, k.Name, k.Limits)
	}
	b.WriteString("\n| `format` | limits |\n|---|---|\n")
	for _, f := range formats {
		row(&b, f.Name, f.Limits)
	}
	b.WriteString("\nThese keywords affect validity and are refused, unless their value changes nothing, such as `\"not\": {}` (no value) and `\"nullable\": true` (null, too): `" + strings.Join(slices.Sorted(maps.Keys(assertions)), "`, `") + "`.\nAll other keywords are annotations.\n")
	return b.String()
}

func row(b *strings.Builder, name, limits string) {
	fmt.Fprintln(b, strings.Replace("| `"+name+"` | "+limits+" |", "|  |", "| |", 1))
}

// TestEveryKeywordIsEnforcedOrIgnored asks the compiler about each listed keyword, with a value that
// only format and const take.
func TestEveryKeywordIsEnforcedOrIgnored(t *testing.T) {
	for _, k := range Keywords {
		if _, err := NewCompiler().Compile(`{"type":["object","array","string","number"],"` + k.Name + `":{"contains":{"contains":{}}}}`); (err == nil) != (k.Name == "format" || k.Name == "const") {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
	for _, name := range []string{"x-name", "title", "enumDescriptions", "$anchor", "errorMessage"} {
		if _, err := NewCompiler().Compile(`{"` + name + `":{"contains":{"contains":{}}}}`); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
