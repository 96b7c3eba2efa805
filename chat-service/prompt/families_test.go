package prompt

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/families/traits.json instead of comparing it")

// TestTraitsOfFamilies compares what probes find in the templates of testdata/families with
// traits.json.
func TestTraitsOfFamilies(t *testing.T) {
	const golden = "testdata/families/traits.json"
	var families []struct {
		Name   string
		Tokens map[string]string
	}
	readJSON(t, "testdata/families/families.json", &families)
	found := map[string]Traits{}
	for _, f := range families {
		source, err := os.ReadFile(filepath.Join("testdata/families", f.Name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		template, err := New(string(source), f.Tokens)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		found[f.Name] = template.Traits()
	}
	var all bytes.Buffer
	enc := json.NewEncoder(&all)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(found); err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(golden, all.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(all.Bytes(), want) {
		t.Errorf("the findings differ from %s; git diff shows them after go test -run TraitsOfFamilies -rewrite:\n%s", golden, all.Bytes())
	}
}
