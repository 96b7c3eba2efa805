package web

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryFileHasATypeAndAnETag(t *testing.T) {
	tags := map[string]string{}
	for _, f := range Files() {
		if f.ContentType == "" {
			t.Errorf("%s: no content type for %q", f.Path, path.Ext(f.Path))
		}
		if !regexp.MustCompile(`^"[0-9a-f]{32}"$`).MatchString(f.ETag) {
			t.Errorf("%s: ETag %s", f.Path, f.ETag)
		}
		if other, ok := tags[f.ETag]; ok {
			t.Errorf("%s and %s have the same ETag", f.Path, other)
		}
		tags[f.ETag] = f.Path
		if len(f.Body) == 0 {
			t.Errorf("%s is empty", f.Path)
		}
	}
	for _, want := range []string{"/", "/assets/app.js", "/assets/favicon.svg", "/assets/style.css"} {
		if !slices.ContainsFunc(Files(), func(f File) bool { return f.Path == want }) {
			t.Errorf("no file %s", want)
		}
	}
}

// TestCopiesEqualTheClientsFiles: the page has copies of files of the client, because embedding
// does not reach beyond its directory.
func TestCopiesEqualTheClientsFiles(t *testing.T) {
	sources, err := filepath.Glob("../../clients/js/src/*.js")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no source of the client (%v)", err)
	}
	copies, err := filepath.Glob("assets/client/*.js")
	if err != nil || len(copies) != len(sources) {
		t.Errorf("assets/client has %v, want copies of %v (%v)", copies, sources, err)
	}
	for _, source := range sources {
		theirs, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := os.ReadFile(filepath.Join("assets/client", filepath.Base(source)))
		if err != nil || !bytes.Equal(ours, theirs) {
			t.Errorf("assets/client/%s is not %s: copy it, it is tested there (%v)", filepath.Base(source), source, err)
		}
	}
}

func TestTestsAreNotEmbedded(t *testing.T) {
	for _, f := range Files() {
		if strings.Contains(f.Path, "test") || strings.HasSuffix(f.Path, ".json") || strings.HasSuffix(f.Path, ".mjs") {
			t.Errorf("%s is embedded", f.Path)
		}
	}
}

func TestFresh(t *testing.T) {
	f := newFile("assets/a.js", []byte("a"))
	for header, want := range map[string]bool{
		"":                              false,
		`"other"`:                       false,
		strings.Trim(f.ETag, `"`):       false,
		"*":                             true,
		f.ETag:                          true,
		"W/" + f.ETag:                   true,
		`"other", ` + f.ETag:            true,
		`W/"other" , W/` + f.ETag + " ": true,
	} {
		if got := f.Fresh(header); got != want {
			t.Errorf("Fresh(%s) = %v, want %v", header, got, want)
		}
	}
}

var (
	srcOrHref = regexp.MustCompile(`\s(?:src|href)\s*=\s*"([^"]*)"`)
	jsImport  = regexp.MustCompile(`(?m)^(?:import|export)\s(?:[^'";=(]*\sfrom\s)?\s*['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]`)
	cssImport = regexp.MustCompile(`url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)`)
)

// references returns the URL paths that a file loads.
func references(f File) []string {
	find := func(re *regexp.Regexp) (refs []string) {
		for _, match := range re.FindAllSubmatch(f.Body, -1) {
			ref := string(bytes.Join(match[1:], nil))
			if !strings.HasPrefix(ref, "/") && !strings.HasPrefix(ref, "#") {
				ref = path.Join(path.Dir(f.Path), ref)
			}
			refs = append(refs, ref)
		}
		return refs
	}
	switch path.Ext(f.Path) {
	case ".js":
		return find(jsImport)
	case ".css":
		return find(cssImport)
	default:
		return find(srcOrHref)
	}
}

func TestReferencesAreEmbedded(t *testing.T) {
	referenced := map[string]bool{"/": true}
	byPath := map[string]File{}
	for _, f := range Files() {
		byPath[f.Path] = f
	}
	for _, f := range Files() {
		for _, ref := range references(f) {
			if strings.HasPrefix(ref, "#/") {
				continue // the fragment of a view
			}
			if id, ok := strings.CutPrefix(ref, "#"); ok {
				if !bytes.Contains(f.Body, []byte(`id="`+id+`"`)) {
					t.Errorf("%s refers to %s, which is not on the page", f.Path, ref)
				}
				continue
			}
			referenced[ref] = true
			if _, ok := byPath[ref]; !ok {
				t.Errorf("%s refers to %s, which is not embedded", f.Path, ref)
			}
		}
	}
	for _, f := range Files() {
		if !referenced[f.Path] {
			t.Errorf("%s is embedded, and nothing refers to it", f.Path)
		}
	}
	// The regular expressions above must not have missed the imports.
	if refs := references(byPath["/assets/app.js"]); !slices.Contains(refs, "/assets/chatpage.js") {
		t.Errorf("app.js refers to %v, without chatpage.js", refs)
	}
}

// notFetched are URLs that no code of the page fetches.
var notFetched = []string{
	"http://www.w3.org/2000/svg",         // an XML namespace
	"https://github.com/markedjs/marked", // in marked's notice, and in the text of an error
	`"http://"`,                          // marked puts this before a bare www address of an answer
}

func TestNothingLeavesTheHost(t *testing.T) {
	external := regexp.MustCompile(`(?i)[a-z][a-z0-9+.-]*://|["'(=]\s*//[a-z]`)
	for _, f := range Files() {
		body := f.Body
		for _, text := range notFetched {
			body = bytes.ReplaceAll(body, []byte(text), nil)
		}
		if found := external.Find(body); found != nil {
			t.Errorf("%s has an external URL: %s", f.Path, found)
		}
	}
}

func TestPageWorksUnderItsPolicy(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"inline script":   regexp.MustCompile(`(?is)<script[^>]*>\s*[^<\s]`),
		"inline style":    regexp.MustCompile(`(?i)<style|\sstyle\s*=`),
		"event attribute": regexp.MustCompile(`(?i)<[^>]*\son[a-z]+\s*=`),
		"javascript URL":  regexp.MustCompile(`(?i)["']javascript:`),
		"form action":     regexp.MustCompile(`(?i)<form[^>]*\saction`),
		"eval":            regexp.MustCompile(`\beval\(|\bnew Function\(`),
		"markup as text":  regexp.MustCompile(`\b(inner|outer)HTML\b|insertAdjacentHTML|document\.write`),
		"style attribute": regexp.MustCompile(`setAttribute\(\s*['"]style`),
	}
	for _, f := range Files() {
		for what, re := range forbidden {
			if re == forbidden["event attribute"] && path.Ext(f.Path) == ".js" {
				continue // code compares with < and assigns to names such as online
			}
			if found := re.Find(f.Body); found != nil {
				t.Errorf("%s has an %s: %s", f.Path, what, found)
			}
		}
	}
}
