package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestEarlierReleaseIsBuiltFromHistory: the last tag before HEAD wins over one of HEAD, is built once, and
// leaves the checkout as it was. A shallow checkout gets a sentence that says what to do.
func TestEarlierReleaseIsBuiltFromHistory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if _, err := Tool("git"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	run("git", "init", "-q", dir)
	commit := func(tag, says string) {
		t.Helper()
		for name, text := range map[string]string{
			"go.mod": "module " + module + "\n\ngo 1.26\n", "says/main.go": "package main\n\nfunc main() { println(\"" + says + "\") }\n", ".gitignore": "/.cache\n",
		} {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		run("git", "-C", dir, "add", ".")
		run("git", "-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", says)
		run("git", "-C", dir, "tag", tag)
	}
	commit("v0.9.0", "the first")
	commit("v0.10.0", "the second")
	commit("v0.11.0", "this one")
	said := func() (bin, text string) {
		t.Helper()
		bin, err := EarlierRelease(t.Context(), dir, "says")
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "says")).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		return bin, strings.TrimSpace(string(out))
	}
	bin, text := said()
	if text != "the second" {
		t.Errorf("the last release says %q", text)
	}
	if err := os.WriteFile(filepath.Join(bin, "says"), []byte("#!/bin/sh\necho kept\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if _, text := said(); text != "kept" {
		t.Errorf("the release was built again: it says %q", text)
	}
	if out, err := git(t.Context(), dir, "status", "--porcelain"); err != nil || out != "" {
		t.Errorf("the checkout has changed: %s, %v", out, err)
	}
	shallow := filepath.Join(t.TempDir(), "shallow")
	run("git", "clone", "-q", "--depth", "1", "file://"+dir, shallow)
	if _, err := EarlierRelease(t.Context(), shallow, "says"); err == nil || !strings.Contains(err.Error(), "fetch the whole history with its tags (git fetch --unshallow --tags") {
		t.Error(err)
	}
}
