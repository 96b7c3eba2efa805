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

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/pkg/streamerr"
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

// TestProposalHasOurReasons: the values that it proposes are those of the spans, and all of them; and
// the attributes that it compares them with exist.
func TestProposalHasOurReasons(t *testing.T) {
	proposal, err := os.ReadFile("proposals/otel-genai-stream-endings.md")
	if err != nil {
		t.Fatal(err)
	}
	spans, err := os.ReadFile("../reference/traces.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(proposal), "| value | meaning | span status |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	proposed := map[string]bool{}
	for row := range strings.Lines(table) {
		for _, value := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			proposed[value[1]] = true
		}
	}
	for n := range streamv1.Reason_name {
		if reason := streamerr.Reason(n); reason != streamerr.Unspecified && !proposed[reason.String()] {
			t.Errorf("the proposal has no reason %s", reason)
		}
		delete(proposed, streamerr.Reason(n).String())
	}
	if len(proposed) > 0 {
		t.Errorf("no stream ends with the reasons %v", proposed)
	}
	for _, name := range regexp.MustCompile("`whence\\.\\w+`").FindAllString(string(proposal), -1) {
		if !strings.Contains(string(spans), name) {
			t.Errorf("reference/traces.md does not have %s", name)
		}
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
