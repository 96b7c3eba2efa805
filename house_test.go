package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var printHouse = flag.Bool("house", false, "print the figures of TestTheHouse: scripts/house")

// measuredAt is the commit at which the house was first measured. Packages that it lacks count apart.
const measuredAt = "a6e8cceb"

// notProduction are the directories whose packages no user runs.
var notProduction = []string{"idl/gen", "e2e", "lab", "bench", "examples", "scripts"}

func isUnder(name string, directories []string) bool {
	return slices.ContainsFunc(directories, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}

// A room is a production package.
type room struct {
	name      string
	importers map[string]bool // without tests
	// A machine has stories, and a reader has fuzz targets: both may have one importer.
	machine, reader bool
}

// rooms returns the production packages by their names.
func rooms(all []goPackage) map[string]*room {
	found := map[string]*room{}
	for _, p := range all {
		if name := local(p.ImportPath); !isUnder(name, notProduction) {
			found[name] = &room{name: name, importers: map[string]bool{}}
		}
	}
	for _, p := range all {
		for _, imp := range p.Imports {
			if r := found[local(imp)]; r != nil {
				r.importers[p.ImportPath] = true
			}
		}
		r := found[local(p.ImportPath)]
		if r == nil {
			continue
		}
		tests := slices.Concat(p.TestImports, p.XTestImports)
		r.machine = slices.Contains(tests, module+"/internal/storytest")
		files, _ := filepath.Glob(filepath.Join(p.Dir, "*_test.go")) // fails only for a malformed pattern
		r.reader = slices.ContainsFunc(files, func(file string) bool {
			b, err := os.ReadFile(file)
			return err == nil && fuzzTarget.Match(b)
		})
	}
	return found
}

var fuzzTarget = regexp.MustCompile(`(?m)^func Fuzz\w+\(f \*testing\.F\)`)

// TestTheHouse counts packages, lines and decisions. With -house it prints the figures.
func TestTheHouse(t *testing.T) {
	all := packages(t)
	found := rooms(all)
	if len(found) < 50 {
		t.Fatalf("there are %d production packages: %v is wrong", len(found), notProduction)
	}
	decisions, amended := decisionsAmended(t)
	if !*printHouse {
		return
	}
	var single, excepted []string
	for name, r := range found {
		if len(r.importers) == 1 && !strings.HasSuffix(name, "test") { // help for tests has few importers by nature
			if r.machine || r.reader {
				excepted = append(excepted, name)
			} else {
				single = append(single, name)
			}
		}
	}
	before := exec.Command("git", "ls-tree", "-r", "-d", "--name-only", measuredAt)
	old, err := before.Output()
	known := strings.Split(string(old), "\n")
	var then, since int
	for _, p := range all {
		name := local(p.ImportPath)
		if isUnder(name, []string{"idl/gen"}) {
			continue
		}
		for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			n := countLines(t, filepath.Join(p.Dir, file))
			if name == "" || err != nil || slices.Contains(known, name) {
				then += n
			} else {
				since += n
			}
		}
	}
	slices.Sort(single)
	slices.Sort(excepted)
	pages, words := countPages(t)
	fmt.Printf("packages in production: %d\n", len(found))
	fmt.Printf("packages with one importer: %d; machines with stories and fuzzed readers apart: %d\n", len(single), len(excepted))
	fmt.Printf("lines of code without tests and generated code: %d in directories of %s, %d in others (a package that moved counts as new)\n", then, measuredAt, since)
	fmt.Printf("documentation: %d words on %d pages, without decisions, faults of libraries, Chinese, and tables that a test or a script makes\n", words, pages)
	fmt.Printf("decisions: %d, of which %d are amended or superseded\n", decisions, amended)
	fmt.Printf("\nwith one importer:\n  %s\n\napart:\n  %s\n", strings.Join(single, "\n  "), strings.Join(excepted, "\n  "))
}

// madeTable matches a table that a test or a script makes, and its marks.
var madeTable = regexp.MustCompile(`(?ms)^<!-- .*?^<!-- end`)

// countPages counts the English pages that a user reads, and the words of them that have a letter.
func countPages(t *testing.T) (pages, words int) {
	t.Helper()
	all := []string{"README.md"}
	err := filepath.WalkDir("docs", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"adr", "upstream", "zh"}, entry.Name()):
			return fs.SkipDir
		case filepath.Ext(path) == ".md" && path != reference:
			all = append(all, path)
		}
		return nil
	})
	for _, page := range all {
		text, e := os.ReadFile(page)
		err = errors.Join(err, e)
		for line := range strings.Lines(madeTable.ReplaceAllStringFunc(string(text), withoutRows)) {
			words += len(withLetter.FindAllString(line, -1))
		}
	}
	if err != nil || len(all) < 50 {
		t.Fatalf("%d pages: %v", len(all), err)
	}
	return len(all), words
}

var (
	withLetter = regexp.MustCompile(`\S*[A-Za-z]\S*`)
	tableRows  = regexp.MustCompile(`(?m)^\|.*$`)
)

func withoutRows(part string) string { return tableRows.ReplaceAllString(part, "") }

// decisionsAmended counts the decisions, and those that another one has changed.
func decisionsAmended(t *testing.T) (all, amended int) {
	t.Helper()
	files, err := filepath.Glob("docs/adr/[0-9]*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d decisions: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if head := decisionHead.FindStringSubmatch(string(text)); head != nil && head[3] != "accepted" {
			amended++
		}
	}
	return len(files), amended
}
