package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	fencedCode   = regexp.MustCompile("(?ms)^[ ]*```.*?^[ ]*```[ ]*$")
	inlineCode   = regexp.MustCompile("`[^`\n]+`")
	markdownLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	linkText     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	heading      = regexp.MustCompile(`(?m)^#{1,6} +(.+?)[ #]*$`)
)

// TestLinksOfMarkdownFilesLeadSomewhere checks every relative link of every Markdown file: the target
// exists, and a link to "#anchor" has a heading with that anchor.
func TestLinksOfMarkdownFilesLeadSomewhere(t *testing.T) {
	pages := map[string]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || path != "." && strings.HasPrefix(entry.Name(), ".")):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		pages[path] = fencedCode.ReplaceAllString(string(text), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for page, text := range pages {
		for _, link := range markdownLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(text, ""), -1) {
			if strings.Contains(link[1], ":") { // a URL
				continue
			}
			links++
			if err := checkLink(pages, page, link[1]); err != nil {
				t.Errorf("%s: link to %s: %v", page, link[1], err)
			}
		}
	}
	if links < 100 {
		t.Errorf("found only %d links", links)
	}
}

// checkLink returns an error if the link of a page leads to no file, or to no heading of a page.
func checkLink(pages map[string]string, page, link string) error {
	target, anchor, _ := strings.Cut(link, "#")
	file := page
	if target != "" {
		file = filepath.Join(filepath.Dir(page), target)
	}
	if _, err := os.Stat(file); err != nil {
		return err
	}
	text, isPage := pages[file]
	if anchor == "" || !isPage {
		return nil
	}
	for _, have := range anchors(text) {
		if have == anchor {
			return nil
		}
	}
	return fmt.Errorf("%s has no heading with the anchor %q", file, anchor)
}

// anchors returns the anchors that GitHub gives to the headings of a page.
func anchors(text string) []string {
	var all []string
	seen := map[string]int{}
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		title := linkText.ReplaceAllString(match[1], "$1")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
				return unicode.ToLower(r)
			}
			return -1
		}, title)
		n := seen[anchor]
		seen[anchor]++
		if n > 0 {
			anchor = fmt.Sprintf("%s-%d", anchor, n)
		}
		all = append(all, anchor)
	}
	return all
}

// TestPagesSayOneThing: after the tutorial, commands are those of an installed whence, and the metrics of
// api-service have one port in all examples.
func TestPagesSayOneThing(t *testing.T) {
	pages := 0
	err := filepath.WalkDir("docs", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && (entry.Name() == "adr" || entry.Name() == "upstream") {
			return cmp.Or(err, fs.SkipDir)
		}
		if filepath.Ext(path) != ".md" || path == filepath.Join("docs", "tutorial.md") {
			return nil
		}
		pages++
		text, err := os.ReadFile(path)
		for _, other := range []string{"go run . ", ":9090"} {
			if strings.Contains(string(text), other) {
				t.Errorf("%s has %q: whence is the command, and 9080 the port of metrics", path, other)
			}
		}
		return err
	})
	if err != nil || pages < 50 {
		t.Errorf("%d pages: %v", pages, err)
	}
}

// measuredFigure matches a figure with a unit, as bench/trust writes it.
var measuredFigure = regexp.MustCompile(`[0-9.]+(?:ms|s| %| MiB| KiB)`)

// TestFiguresOfFaultsAreMeasured: each figure and bound of docs/explanation/reliability.md is one of
// bench/trust.md, which scripts/trust writes.
func TestFiguresOfFaultsAreMeasured(t *testing.T) {
	page, err := os.ReadFile("docs/explanation/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile("bench/trust.md")
	if err != nil {
		t.Fatal(err)
	}
	known := measuredFigure.FindAllString(string(all), -1)
	figures := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		for _, figure := range measuredFigure.FindAllString(cells[3]+";"+cells[4], -1) {
			figures++
			if !slices.Contains(known, figure) {
				t.Errorf("scripts/trust has not measured %s: %s", figure, line)
			}
		}
	}
	if figures < 40 {
		t.Errorf("the page has %d figures", figures)
	}
}

// TestBrokenLinksAreFound checks the checker.
func TestBrokenLinksAreFound(t *testing.T) {
	pages := map[string]string{"README.md": "# One `code` & [two](x)\n\n## Same\n## Same\n"}
	for link, found := range map[string]bool{
		"go.mod":           true,
		"#one-code--two":   true,
		"#same-1":          true,
		"README.md#same":   true,
		"#same-2":          false,
		"nowhere.md":       false,
		"README.md#absent": false,
	} {
		if err := checkLink(pages, "README.md", link); (err == nil) != found {
			t.Errorf("%s: %v", link, err)
		}
	}
}
