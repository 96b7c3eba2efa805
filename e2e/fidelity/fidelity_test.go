package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/tier"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const installed = "../../.cache/fidelity"

// need ends a test without its reference: the test is skipped, or fails with CI=true.
func need(t *testing.T, command ...string) {
	t.Helper()
	_, err := os.Stat(installed + "/installed")
	if err == nil {
		err = exec.Command(command[0], command[1:]...).Run()
	}
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%v: run scripts/fidelity install", err)
	default:
		t.Skipf("%v: run scripts/fidelity install", err)
	}
}

// The sizes of a short run of scripts/fidelity.
const shortStrings, shortRenders, shortSeed = 500, 100, 7

func TestTokenizersOfPublishedModelsMatchTheRustLibrary(t *testing.T) {
	tier.Full(t)
	need(t, "node", "--version")
	for _, f := range families(installed) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			row, err := compareTokenizers(t.Context(), installed, f, shortStrings, shortSeed)
			if err != nil {
				t.Fatal(err)
			}
			report(t, row)
		})
	}
}

func TestTrainedTokenizersMatchTheRustLibrary(t *testing.T) {
	tier.Full(t)
	need(t, "node", "--version")
	if !hasPrograms(installed) {
		t.Skip("scripts/fidelity could not install the programs")
	}
	rows, err := compareTrained(t.Context(), installed, shortStrings, shortSeed)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 10 {
		t.Errorf("%d tokenizers are compared", len(rows))
	}
	for _, row := range rows {
		report(t, row)
	}
}

func TestExpressionsSplitLikeTheRustLibrarys(t *testing.T) {
	tier.Full(t)
	need(t, "node", "--version")
	for _, class := range patternClasses {
		row, err := comparePatterns(t.Context(), installed, class, shortStrings/10, shortSeed)
		if err != nil {
			t.Fatal(err)
		}
		report(t, row)
	}
}

func TestFilesOfOtherFormatsEncodeLikeTheirPrograms(t *testing.T) {
	tier.Full(t)
	need(t, "node", "--version")
	if !hasPrograms(installed) {
		t.Skip("scripts/fidelity could not install the programs")
	}
	rows, err := compareFiles(t.Context(), installed, shortStrings, shortSeed)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		report(t, row)
	}
}

func TestTemplatesOfPublishedModelsRenderLikeJinja2(t *testing.T) {
	tier.Full(t)
	need(t, python, "-c", "import jinja2")
	all, err := subjects(installed, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		row, err := compareTemplates(t.Context(), s, shortRenders, shortSeed)
		if err != nil {
			t.Fatal(err)
		}
		report(t, row)
	}
	if len(all) < 7 {
		t.Errorf("%d families have a chat template, want at least 7", len(all))
	}
}

func report(t *testing.T, r row) {
	t.Helper()
	for _, difference := range r.differences() {
		t.Error(difference)
	}
}

func TestTheSameSeedGivesTheSameTexts(t *testing.T) {
	write := func() string {
		w := newWriter(3)
		return strings.Join(w.texts(300), "\n")
	}
	if write() != write() {
		t.Error("two writers with one seed differ")
	}
}

func TestUnknownPartIsRefused(t *testing.T) {
	var out strings.Builder
	if err := new(comparison).run(context.Background(), &out, []string{"speeed"}); err == nil || out.Len() > 0 {
		t.Errorf("got %v, and printed %q", err, &out)
	}
}
