// Package upstream compiles and runs the programs of its pages, which show faults of libraries.
package upstream

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// program matches the program of a page.
var program = regexp.MustCompile("(?s)```go\n(.*?)```")

// patience bounds the build and the run of a program.
const patience = 5 * time.Minute

// tries is how often a program may miss its fault, which depends on time for some: a mended library never shows it.
const tries = 5

// TestFaultsAreStillThere fails for a fault that a new version of its library has mended: then our work-around can go, and the page
// with it.
func TestFaultsAreStillThere(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if page == "README.md" {
			continue
		}
		t.Run(page, func(t *testing.T) {
			if !strings.Contains(string(index), "("+page+")") {
				t.Error("README.md does not list it")
			}
			b, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			text := string(b)
			for _, part := range []string{"**Expected.**", "**Actual.**", "**Work-around.**"} {
				if !strings.Contains(text, part) {
					t.Errorf("it has no %s", part)
				}
			}
			found := program.FindAllStringSubmatch(text, -1)
			if len(found) != 1 {
				t.Fatalf("it has %d programs; it must have one", len(found))
			}
			runs := strings.Contains(text, "The test runs this program.")
			if !runs && !strings.Contains(text, "The test compiles this program.") {
				t.Fatal("it does not say whether the test runs or compiles the program")
			}
			var last string
			for range tries {
				if last = play(t, found[0][1], runs); !runs || last == "fault" {
					return
				}
			}
			t.Errorf("the program ends with %q, not with fault: is it mended, and the work-around no longer needed?", last)
		})
	}
}

// play compiles a program, runs it if it is to run, and returns its last line.
func play(t *testing.T, source string, runs bool) (last string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	verb := []string{"vet", file}
	if runs {
		verb = []string{"run", file}
	}
	var logs strings.Builder // of the libraries
	cmd := exec.CommandContext(ctx, "go", verb...)
	cmd.Stderr = &logs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %v: %v\n%s%s", verb, err, out, &logs)
	}
	t.Logf("%s", out)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
