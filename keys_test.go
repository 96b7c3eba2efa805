package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/keys"
)

func TestKeysAreManagedOnTheCommandLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	run := func(args ...string) (out string, err error) {
		t.Helper()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		err = manageKeys(args, w, w)
		_ = w.Close()
		text, _ := io.ReadAll(r)
		return string(text), err
	}
	out, err := run("add", "--file", file, "--tenant", "search", "--id", "search-1", "--expires", "24h")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	key := lines[len(lines)-1]
	if err != nil || !strings.HasPrefix(key, "sk-") {
		t.Fatal(out, err)
	}
	if out, err = run("add", "--file", file, "--tenant", "batch"); err != nil {
		t.Fatal(out, err)
	}
	ring, err := keys.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := ring.Find("Bearer " + key); err != nil || e.Tenant != "search" || e.ID != "search-1" {
		t.Error(e, err)
	}
	if out, err = run("list", "--file", file); err != nil || !strings.Contains(out, "search-1") || !strings.Contains(out, "never") || strings.Count(out, "\n") != 3 {
		t.Error(out, err)
	}
	if out, err = run("revoke", "search-1", "--file", file); err != nil {
		t.Error(out, err)
	}
	for _, wrong := range [][]string{{}, {"rotate"}, {"revoke", "--file", file}, {"revoke", "search-1", "--file", file}, {"add", "--file", file}, {"add", "--file", file, "--tenant", "x", "--expires", "-1h"}, {"list", "--file", file + "x"}} {
		if out, err := run(wrong...); err == nil {
			t.Errorf("%q: %s", wrong, out)
		}
	}
}
