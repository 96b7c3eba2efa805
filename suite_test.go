package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Bounds of the short tier, so that ./scripts/test stays short: what costs seconds is counted, since
// a count is the same on every machine. Raise one only with a reason.
const (
	maxTestBinaries = 201 // packages with tests: each is compiled and linked
	maxE2EFunctions = 150 // tests of e2e that do not belong to the full tier
)

// TestSuiteIsBounded counts what the short tier runs.
func TestSuiteIsBounded(t *testing.T) {
	binaries := 0
	for _, p := range packages(t) {
		if len(p.TestGoFiles)+len(p.XTestImports) > 0 {
			binaries++
		}
	}
	if binaries > maxTestBinaries {
		t.Errorf("%d packages have tests, at most %d may: put a test beside those of a package that has some", binaries, maxTestBinaries)
	}
	files, err := filepath.Glob("e2e/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	functions := 0
	for _, file := range files {
		eachFunction(t, file, func(f *ast.FuncDecl) {
			if strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" && !calls(f, "tier", "Full") {
				functions++
			}
		})
	}
	if functions > maxE2EFunctions {
		t.Errorf("e2e has %d tests in the short tier, at most %d may be there: let one owner of a fault play it, or say tier.Full", functions, maxE2EFunctions)
	}
	t.Logf("%d packages with tests, %d tests of e2e", binaries, functions)
}

// TestTestsDoNotSleep: a test that waits for a time decides by the speed of the machine. Tests wait
// for events and conditions (internal/polltest), or run in virtual time (testing/synctest), where
// Sleep costs nothing: it may stand in a file that uses synctest.
func TestTestsDoNotSleep(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*_test.go").Output()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("not a git checkout")
	}
	for file := range strings.FieldsSeq(string(out)) {
		if _, err := os.Stat(file); err != nil {
			continue // it is deleted
		}
		var virtual bool
		var sleeps []string
		eachFunction(t, file, func(f *ast.FuncDecl) {
			virtual = virtual || calls(f, "synctest", "Test") || calls(f, "synctest", "Wait")
			if calls(f, "time", "Sleep") {
				sleeps = append(sleeps, f.Name.Name)
			}
		})
		if !virtual && len(sleeps) > 0 {
			t.Errorf("%s: %s call time.Sleep, without virtual time", file, strings.Join(sleeps, ", "))
		}
	}
}

// eachFunction calls visit with each function of a file.
func eachFunction(t *testing.T, file string, visit func(*ast.FuncDecl)) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			visit(f)
		}
	}
}

// calls reports whether a function calls name of a package.
func calls(f *ast.FuncDecl, pkg, name string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == name {
			x, ok := s.X.(*ast.Ident)
			found = found || ok && x.Name == pkg
		}
		return !found
	})
	return found
}
