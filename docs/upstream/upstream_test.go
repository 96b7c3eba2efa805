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

	"github.com/whence-dev/whence/internal/tier"
)

// program matches the program of a page.
var program = regexp.MustCompile("(?s)```go\n(.*?)```")

// patience bounds the build and the run of a program.
const patience = 5 * time.Minute

// tries is how often a program may miss its fault, which depends on time for some: a mended library never shows it.
const tries = 5

// TestPagesAreComplete checks the parts of each page.
func TestPagesAreComplete(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for page, text := range pages(t) {
		if !strings.Contains(string(index), "("+page+")") {
			t.Errorf("README.md does not list %s", page)
		}
		for _, part := range []string{"**Expected.**", "**Actual.**", "**Work-around.**"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s has no %s", page, part)
			}
		}
		if found := program.FindAllString(text, -1); len(found) != 1 {
			t.Errorf("%s has %d programs; it must have one", page, len(found))
		}
		if strings.Contains(text, runs) == strings.Contains(text, compiles) {
			t.Errorf("%s does not say whether the test runs or compiles the program", page)
		}
	}
}

// Each page has one of these two sentences.
const (
	runs     = "The test runs this program."
	compiles = "The test compiles this program."
)

// TestFaultsAreStillThere fails for a fault that a new version of its library has mended: then our work-around can go, and the page
// with it.
func TestFaultsAreStillThere(t *testing.T) {
	tier.Full(t)
	for page, text := range pages(t) {
		t.Run(page, func(t *testing.T) {
			source, runs := program.FindStringSubmatch(text)[1], strings.Contains(text, runs)
			var last string
			for range tries {
				if last = play(t, source, runs); !runs || last == "fault" {
					return
				}
			}
			t.Errorf("the program ends with %q, not with fault: is it mended, and the work-around no longer needed?", last)
		})
	}
}

// pages returns the texts of the pages by their names.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if name != "README.md" {
			all[name] = string(b)
		}
	}
	return all
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
