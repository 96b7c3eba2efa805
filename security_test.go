package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest    = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)`")
	declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)\(`)
)

// TestSecurityPromisesHaveTests: each promise of bench/promises.md
// names an existing test.
func TestSecurityPromisesHaveTests(t *testing.T) {
	declared := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && (entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && path != ".") {
			if err == nil {
				err = filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range declaredTest.FindAllSubmatch(text, -1) {
			declared[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("bench/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	_, promises, _ := strings.Cut(string(text), "\n## Identity\n")
	rows, promised := 0, false // promised: the table has a column of tests; a table without one has measurements
	for line := range strings.Lines(promises) {
		if !strings.HasPrefix(line, "|") {
			promised = false
			continue
		}
		if strings.HasSuffix(line, "| test |\n") {
			promised = true
			continue
		}
		if !promised || strings.HasPrefix(line, "|---") {
			continue
		}
		rows++
		tests := namedTest.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("a promise without a test: %s", line)
		}
		for _, test := range tests {
			if !declared[test[1]] {
				t.Errorf("there is no %s: %s", test[1], line)
			}
		}
	}
	if rows == 0 {
		t.Error("bench/promises.md has no promises")
	}
}
