package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/hub/hubtest"
	"github.com/whence-dev/whence/internal/tier"
)

// A library is huggingface_hub with a hub, a cache and a token.
type library struct {
	python string
	env    map[string]string
}

// call runs upstream/hub.py.
func (l *library) call(t *testing.T, into any, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), l.python, append([]string{filepath.Join("upstream", "hub.py")}, args...)...)
	cmd.Env = append(os.Environ(), "HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_DISABLE_PROGRESS_BARS=1", "NO_PROXY=127.0.0.1")
	for name, value := range l.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, problems.String())
	}
}

// get returns the snapshot of a model, or the name of the library's error.
func (l *library) get(t *testing.T, args ...string) (path, failure string) {
	t.Helper()
	var answer struct{ Path, Error string }
	l.call(t, &answer, args...)
	return answer.Path, answer.Error
}

// options are those of Whence in the library's environment.
func (l *library) options() hub.Options {
	return hub.Options{Env: func(name string) string { return l.env[name] }}
}

// TestHuggingFaceHub: the library takes the hub of our tests for the real one, and each of the two uses
// the other's cache.
func TestHuggingFaceHub(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const id = "acme/Small-1"
	h := hubtest.New(t)
	files := hubtest.Files(strings.Repeat("a tokenizer ", 100_000))
	model := hubtest.Model{Files: files, Large: []string{"tokenizer.json", "model.safetensors"}}
	commit := h.Add(id, model, "v1")
	gated, private := model, model
	gated.Gated, private.Private = true, true
	h.Add("acme/gated", gated)
	h.Add("acme/private", private)
	open := func(more map[string]string) *library {
		dir := t.TempDir()
		env := map[string]string{"HF_ENDPOINT": h.URL, "HF_HOME": dir, "HF_HUB_CACHE": filepath.Join(dir, "hub"), "HOME": dir}
		maps.Copy(env, more)
		return &library{filepath.Join(clientsDir(t), "python", "bin", "python"), env}
	}

	for name, test := range map[string]struct {
		token string
		args  []string
		want  string
	}{
		"unknown model":       {"", []string{"acme/none", "main", "config.json"}, "RepositoryNotFoundError"},
		"unknown revision":    {"", []string{id, "v2", "config.json"}, "RevisionNotFoundError"},
		"unknown file":        {"", []string{id, "main", "none.json"}, "RemoteEntryNotFoundError"},
		"gated":               {"", []string{"acme/gated", "main", "config.json"}, "GatedRepoError"},
		"gated for a token":   {"hf_somebody", []string{"acme/gated", "main", "tokenizer.json"}, "GatedRepoError"},
		"gated for the owner": {h.Token, []string{"acme/gated", "main", "tokenizer.json"}, ""},
		"private":             {"hf_somebody", []string{"acme/private", "main", "config.json"}, "RepositoryNotFoundError"},
	} {
		l := open(map[string]string{"HF_TOKEN": test.token})
		if _, failure := l.get(t, test.args...); failure != test.want {
			t.Errorf("%s: the library says %q, want %q", name, failure, test.want)
		}
	}

	needed := []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
	for name, args := range map[string][]string{
		"file by file": append([]string{id, "v1"}, needed...), "at once": {id, "v1"},
	} {
		theirs := open(nil)
		path, failure := theirs.get(t, args...)
		if failure != "" {
			t.Fatal(name, failure)
		}
		theirs.env["HF_HUB_OFFLINE"] = "1"
		if got, err := hub.Resolve(t.Context(), id+"@v1", theirs.options()); got != path || err != nil {
			t.Errorf("%s: the library's snapshot is %s, ours %s: %v", name, path, got, err)
		}
	}

	ours := open(nil)
	h.Break("tokenizer.json", 300_000)
	path, err := hub.Resolve(t.Context(), id, ours.options())
	if err != nil {
		t.Fatal(err)
	}
	var scan struct {
		Warnings []string
		Models   map[string]map[string][][]string
	}
	ours.call(t, &scan)
	want := map[string]map[string][][]string{id: {commit: {{"main"}, needed}}}
	if len(scan.Warnings) > 0 || !reflect.DeepEqual(scan.Models, want) {
		t.Errorf("the library finds %v in our cache, and warns %q", scan.Models, scan.Warnings)
	}
	ours.env["HF_HUB_OFFLINE"] = "1"
	if got, failure := ours.get(t, append([]string{id, "main"}, needed...)...); got != path || failure != "" {
		t.Errorf("our snapshot is %s, the library's %s: %s", path, got, failure)
	}
	delete(ours.env, "HF_HUB_OFFLINE")
	h.Requests()
	if got, failure := ours.get(t, id, "main"); got != path || failure != "" {
		t.Errorf("our snapshot is %s, the library's %s: %s", path, got, failure)
	}
	asked := h.Requests()
	if slices.ContainsFunc(asked, func(r string) bool {
		return strings.HasPrefix(r, "GET") && (strings.HasSuffix(r, "tokenizer.json") || strings.HasSuffix(r, "/config.json"))
	}) || !slices.ContainsFunc(asked, func(r string) bool { return strings.HasPrefix(r, "GET") && strings.HasSuffix(r, "README.md") }) {
		t.Errorf("the library downloads %v: only README.md is missing", asked)
	}
}
