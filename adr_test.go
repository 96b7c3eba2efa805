package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// decisionHead matches the heading, the status and the date of a decision. A long status wraps.
var decisionHead = regexp.MustCompile(
	`^# (\d+)\. ([^\n]+)\n\nStatus: (accepted|(?:amended|superseded) by \[\d+\][^\n]*(?:\n[^\n]+)*)\n\nDate: \d{4}-\d\d-\d\d\n`)

// TestDecisionsAreNumberedAndListed checks that decisions have the numbers from 1, that each has a
// status and a date, and that docs/adr/README.md lists it with title and status.
func TestDecisionsAreNumberedAndListed(t *testing.T) {
	index, err := os.ReadFile("docs/adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("docs/adr/[0-9]*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d decisions: %v", len(files), err)
	}
	fileOf := make(map[string]string, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head := decisionHead.FindStringSubmatch(string(text))
		if head == nil {
			t.Errorf("%s must begin with \"# NUMBER. TITLE\", \"Status: ...\" and \"Date: YYYY-MM-DD\"; "+
				"docs/adr/README.md lists the statuses", file)
			continue
		}
		number, title, status := head[1], head[2], strings.ReplaceAll(head[3], "\n", " ")
		if other := fileOf[number]; other != "" {
			t.Errorf("%s and %s have the number %s", other, file, number)
		}
		fileOf[number] = file
		if digits, _, _ := strings.Cut(filepath.Base(file), "-"); strings.TrimLeft(digits, "0") != number {
			t.Errorf("%s has the heading of decision %s", file, number)
		}
		if want := "| [" + number + "](" + filepath.Base(file) + ") | " + title + " | " + status + " |"; !strings.Contains(string(index), want) {
			t.Errorf("docs/adr/README.md lacks the line %q", want)
		}
	}
	for i := range files {
		if number := strconv.Itoa(i + 1); fileOf[number] == "" {
			t.Errorf("there is no decision %s; the numbers have no gaps", number)
		}
	}
}
