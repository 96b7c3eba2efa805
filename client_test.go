package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	clientModule = "client"
	clientCopy   = "internal/client"
)

// TestInternalClientIsACopyOfTheClient: see docs/adr/0071-a-module-for-the-client.md.
func TestInternalClientIsACopyOfTheClient(t *testing.T) {
	sources, copies := clientSources(t, clientModule), clientSources(t, clientCopy)
	if !slices.Equal(sources, copies) {
		t.Errorf("%s has %v, and %s has %v: run scripts/client", clientCopy, copies, clientModule, sources)
	}
	for _, name := range sources {
		want, err := os.ReadFile(filepath.Join(clientModule, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(clientCopy, name))
		if _, text, _ := bytes.Cut(got, []byte("\n\n")); err != nil || !bytes.Equal(text, want) {
			t.Errorf("%s/%s differs from %s (%v): run scripts/client", clientCopy, name, clientModule, err)
		}
	}
}

// clientSources returns the names of the files of a package, without its tests.
func clientSources(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(file); !strings.HasSuffix(name, "_test.go") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Fatalf("%s has no files", dir)
	}
	return names
}

// TestClientModuleRequiresNothing: a service that only reads streams inherits no other module.
func TestClientModuleRequiresNothing(t *testing.T) {
	const name = module + "/" + clientModule
	for _, args := range [][]string{
		{"list", "-m", "all"},
		{"list", "-deps", "-test", "-f", "{{if not .Standard}}{{.Module.Path}}{{end}}", "./..."},
	} {
		cmd := exec.Command("go", append([]string{"-C", clientModule}, args...)...)
		cmd.Env = append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		for path := range strings.FieldsSeq(string(out)) {
			if path != name {
				t.Errorf("go %v names the module %s: package client may need the standard library only", args, path)
			}
		}
	}
}
