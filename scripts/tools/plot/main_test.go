package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestDrawDrawsEveryBar: each system has one bar for each scenario, and one tile in the legend.
func TestDrawDrawsEveryBar(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.json"), filepath.Join(dir, "out.svg")
	err := os.WriteFile(in, []byte(`{"rows": [
		{"scenario": "spread", "system": "nginx", "ratio": {"median": 1, "n": 3}},
		{"scenario": "spread", "system": "Whence", "ratio": {"median": 0.9, "n": 3}},
		{"scenario": "churn", "system": "nginx", "ratio": {"median": 1, "n": 3}},
		{"scenario": "churn", "system": "Whence", "ratio": {"median": 4, "n": 3}}
	]}`), 0o600)
	if err == nil {
		err = draw(in, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, colour := range []string{"#9E9E9E", "#BCCF9A"} {
		if n := bytes.Count(svg, []byte("fill:"+colour)); n != 3 {
			t.Errorf("there are %d shapes in %s, want 3", n, colour)
		}
	}
}
