package prompt

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
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
	if *rewrite {
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		err := enc.Encode(found)
		if err == nil {
			err = os.WriteFile(golden, text.Bytes(), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var want map[string]Traits
	readJSON(t, golden, &want)
	if len(want) != len(found) {
		t.Errorf("%s has %d families of %d", golden, len(want), len(found))
	}
	for name, got := range found {
		got.Written.Tools = "" // is not in the file
		if !reflect.DeepEqual(got, want[name]) {
			t.Errorf("%s (go test -run TraitsOfFamilies -rewrite writes the file):\n got %+v\nwant %+v", name, got, want[name])
		}
	}
}
