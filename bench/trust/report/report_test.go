package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whence-dev/whence/lab"
)

// TestMissedBoundsAreReported: a figure over its bound is marked in every output.
func TestMissedBoundsAreReported(t *testing.T) {
	all := []Finding{{Row: "r", What: "pause", Unit: lab.Millis, Got: 501.2, Bound: 500}, {Row: "r", What: "streams", Got: 0, Bound: 0}}
	var out strings.Builder
	if err := Print(&out, all); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.Contains(lines[1], "501.2ms") || !strings.HasSuffix(lines[1], "MISSED") || strings.Contains(lines[2], "MISSED") {
		t.Error(out.String())
	}
}

// TestMemoryIsReadable: a quarter of a MiB is not rounded to 0.2 MiB.
func TestMemoryIsReadable(t *testing.T) {
	for n, want := range map[float64]string{0.25: "256 KiB", -0.25: "-256 KiB", 0: "0 KiB", 20.04: "20.0 MiB"} {
		if got := (&Finding{Unit: lab.Mebibytes}).Said(n); got != want {
			t.Errorf("%v MiB is %s, want %s", n, got, want)
		}
	}
}

// TestTheTableOfADocumentIsReplaced: Publish keeps the text around the markers, and refuses a document
// without them.
func TestTheTableOfADocumentIsReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("before\n<!-- trust -->\nold\n<!-- end of trust -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := []Finding{
		{Row: "r", What: "w", Got: 2, Bound: 1}, {Row: "r", What: "hang"}, {Row: "r", What: "fail"}, {Row: "r", What: "left", Got: 51, Bound: 50},
		{Row: "s", What: "w", Got: 1, Bound: 3}, {Row: "s", What: "v", Bound: 3}, {Row: "s", What: "hang"}, {Row: "s", What: "lost", Got: 1}, {Row: "s", What: "left", Bound: 50},
	}
	if err := Publish(file, "Title:", all); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const want = "before\n<!-- trust -->\nTitle:\n\nIn all rows these are 0, as they must be: hang.\n\n" +
		"| fault | measured (bound) | also 0 | left (50) |\n|---|---|---|---|\n| r | w: 2, **missed** (1) | fail | 51, **missed** |\n" +
		"| s | w: 1 (3); v: 0 (3); lost: 1, **missed** (0) |  | 0 |\n<!-- end of trust -->\nafter\n"
	if string(got) != want {
		t.Errorf("%s", got)
	}
	if err := os.WriteFile(file, []byte("no table"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Publish(file, "Title:", nil); err == nil {
		t.Error("a document without markers is accepted")
	}
}
