// Package storytest tests a state machine with stories.
//
// A story is a part of a text file in testdata. A line without indentation is an event, or the
// configuration of a new machine. The indented lines below it are the resulting actions. Empty
// lines, and lines that begin with #, are ignored.
package storytest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the resulting actions into the stories of testdata")

// Play plays the stories of testdata/*.txt, one file in each subtest. step executes a line, and
// returns the lines for the resulting actions. The test fails if the file has other actions; with
// -rewrite, Play writes the actions to the file.
func Play(t *testing.T, step func(t *testing.T, line string) (actions []string)) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("testdata has no stories", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file, step) })
	}
}

func play(t *testing.T, file string, step func(*testing.T, string) []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue // a resulting action
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, action := range step(t, line) {
			out.WriteString("  " + action + "\n")
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if out.String() != string(text) {
		t.Errorf("the actions differ from the story; go test -rewrite updates the file:\n%s", out.String())
	}
}
