package hub

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/whence-dev/whence/internal/hub/hubtest"
)

const id = "acme/Small-1"

var tokenizerText = strings.Repeat("a tokenizer ", 20000)

// small is a model whose tokenizer is stored elsewhere.
func small() hubtest.Model {
	return hubtest.Model{Files: hubtest.Files(tokenizerText), Large: []string{"tokenizer.json", "model.safetensors"}}
}

// needed are the files of small that are fetched.
var needed = []string{"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"}

// An environment is the environment of a process with a cache of its own.
type environment map[string]string

func (e environment) options() Options {
	return Options{Env: func(name string) string { return e[name] }}
}

func (e environment) cache() repo {
	return repo{filepath.Join(e["HF_HUB_CACHE"], "models--acme--Small-1")}
}

func newEnvironment(t testing.TB, h *hubtest.Hub) environment {
	dir := t.TempDir()
	return environment{"HF_ENDPOINT": h.URL, "HF_HUB_CACHE": filepath.Join(dir, "hub"), "HOME": dir}
}

func resolve(t *testing.T, e environment, reference string) string {
	t.Helper()
	path, err := Resolve(t.Context(), reference, e.options())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// refused resolves and returns the text of the error.
func refused(t *testing.T, e environment, reference string) string {
	t.Helper()
	path, err := Resolve(t.Context(), reference, e.options())
	if err == nil {
		t.Fatalf("%s is at %s", reference, path)
	}
	return err.Error()
}

// expectFiles compares a snapshot with a model.
func expectFiles(t *testing.T, path string, want map[string]string, names ...string) {
	t.Helper()
	var got []string
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		got = append(got, entry.Name())
		text, err := os.ReadFile(filepath.Join(path, entry.Name()))
		if err != nil || string(text) != want[entry.Name()] {
			t.Errorf("%s has %d bytes, want %d: %v", entry.Name(), len(text), len(want[entry.Name()]), err)
		}
	}
	if slices.Sort(names); !slices.Equal(got, names) {
		t.Errorf("%s has %v, want %v", path, got, names)
	}
}

// leftovers returns the temporary files of a cache.
func leftovers(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if name := filepath.Base(path); strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".incomplete") {
			names = append(names, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return names
}

func TestModelIsDownloadedOnce(t *testing.T) {
	h := hubtest.New(t)
	commit := h.Add(id, small())
	e := newEnvironment(t, h)
	e["HF_TOKEN"] = "hf_somebody"
	path := resolve(t, e, id)
	if want := e.cache().snapshot(commit); path != want {
		t.Errorf("the snapshot is %s, want %s", path, want)
	}
	expectFiles(t, path, small().Files, needed...)
	for _, r := range h.Requests() { // the other server would refuse a token
		if strings.Contains(r, "safetensors") || strings.Contains(r, "README") {
			t.Errorf("%s: the file is not needed", r)
		}
	}
	if ref, err := os.ReadFile(filepath.Join(e.cache().root, "refs", "main")); string(ref) != commit {
		t.Errorf("refs/main is %q: %v", ref, err)
	}
	if to, err := os.Readlink(filepath.Join(path, "config.json")); !strings.HasPrefix(to, filepath.Join("..", "..", "blobs")+"/") {
		t.Errorf("config.json is a link to %q: %v", to, err)
	}
	if left := leftovers(t, e["HOME"]); len(left) > 0 {
		t.Errorf("the cache has %v", left)
	}
	e["HF_ENDPOINT"] = "http://127.0.0.1:1" // nothing is asked again, not even which files there are
	if again := resolve(t, e, id); again != path {
		t.Errorf("the second time it is at %s", again)
	}
	if Name(path) != "Small-1" || ID(path) != id {
		t.Errorf("the snapshot has the name %q and the id %q", Name(path), ID(path))
	}
}

func TestNewerCommitDoesNotMixWithTheCache(t *testing.T) {
	h := hubtest.New(t)
	old := h.Add(id, small(), "v1", "refs/pr/1")
	e := newEnvironment(t, h)
	first := resolve(t, e, id)
	m := small()
	m.Files["config.json"] = `{"max_position_embeddings":2048}`
	m.Files["chat_template.jinja"] = "new"
	fresh := h.Add(id, m)
	if path := resolve(t, e, id); path != first {
		t.Errorf("a complete cache is asked for %s, and answers with %s", first, path)
	}
	// Another program has removed a file: it comes from the commit of the others.
	if err := os.Remove(filepath.Join(first, "generation_config.json")); err != nil {
		t.Fatal(err)
	}
	if path := resolve(t, e, id); path != first {
		t.Errorf("the rest comes from %s", path)
	}
	expectFiles(t, first, small().Files, needed...)
	for _, revision := range []string{"v1", "refs/pr/1", old} {
		if path := resolve(t, e, id+"@"+revision); path != first {
			t.Errorf("%s is %s", revision, path)
		}
	}
	if path := resolve(t, e, id+"@"+fresh); path != e.cache().snapshot(fresh) {
		t.Errorf("the new commit is %s", path)
	} else {
		expectFiles(t, path, m.Files, append(needed, "chat_template.jinja")...)
	}
	if text := refused(t, e, id+"@v2"); !strings.Contains(text, `no such revision as "v2"`) {
		t.Error(text)
	}
}

// TestCacheOfOthersIsUsed: other programs keep fewer or more files, and note less.
func TestCacheOfOthersIsUsed(t *testing.T) {
	h := hubtest.New(t)
	commit := h.Add(id, small())
	e := newEnvironment(t, h)
	e["HF_HUB_OFFLINE"] = "1"
	c := e.cache()
	if text := refused(t, e, id); !strings.Contains(text, "HF_HUB_OFFLINE is set") || !strings.Contains(text, "hf download acme/Small-1") {
		t.Error(text)
	}
	for name, text := range map[string]string{"refs/main": commit, "snapshots/" + commit + "/config.json": "{}", "snapshots/" + commit + "/tokenizer.json": "{}"} {
		path := filepath.Join(c.root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if path := resolve(t, e, id); path != c.snapshot(commit) {
		t.Error(path)
	}
	delete(e, "HF_HUB_OFFLINE")
	o := e.options()
	if o.NoDownload = true; true {
		if path, err := Resolve(t.Context(), id, o); path != c.snapshot(commit) {
			t.Error(path, err)
		}
	}
	if asked := h.Requests(); len(asked) > 0 {
		t.Errorf("the hub was asked: %v", asked)
	}
	// Without a hub the model is served as far as it is known, and the log says so.
	var log bytes.Buffer
	e["HF_ENDPOINT"] = "http://127.0.0.1:1"
	o = e.options()
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	if path, err := Resolve(t.Context(), id, o); path != c.snapshot(commit) || !strings.Contains(log.String(), "generation_config.json") {
		t.Error(path, err, log.String())
	}
	e["HF_ENDPOINT"] = h.URL
	expectFiles(t, resolve(t, e, id), map[string]string{
		"config.json": "{}", "tokenizer.json": "{}", // not replaced
		"generation_config.json": small().Files["generation_config.json"], "tokenizer_config.json": small().Files["tokenizer_config.json"],
	}, needed...)
}

func TestNoDownloadSaysWhatIsMissing(t *testing.T) {
	h := hubtest.New(t)
	h.Add(id, small())
	e := newEnvironment(t, h)
	o := e.options()
	o.NoDownload = true
	_, err := Resolve(t.Context(), id+"@v1", o)
	if err == nil || !strings.Contains(err.Error(), "--no-download forbids") || !strings.Contains(err.Error(), "--revision v1") || !strings.Contains(err.Error(), e["HF_HUB_CACHE"]) {
		t.Error(err)
	}
	if asked := h.Requests(); len(asked) > 0 {
		t.Errorf("the hub was asked: %v", asked)
	}
}

func TestPathsWinOverIDs(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("acme/Small-1", 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{Env: func(string) string { return "no use" }}
	for _, path := range []string{"", "acme/Small-1", "/models/x", "./acme/other", "../acme/other", "a/b/c", "model", "acme/small.gguf", "acme/a--b", "acme/a..b", "acme/a@../x", "acme/a@"} {
		if got, err := Resolve(t.Context(), path, o); got != path || err != nil {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
	h := hubtest.New(t)
	h.Add(id, small())
	e := newEnvironment(t, h)
	path, err := ResolveID(t.Context(), id, e.options())
	if err != nil || path == id {
		t.Errorf("an id of a server is at %q: %v", path, err)
	}
	for _, name := range []string{"../etc", "/etc", "acme", ""} {
		if path, err := ResolveID(t.Context(), name, e.options()); err == nil {
			t.Errorf("a server's %q is at %s", name, path)
		}
	}
	if text := refused(t, e, "acme/Smal"); !strings.Contains(text, "nor is there a directory") {
		t.Error(text)
	}
}

func TestNamesOfReferences(t *testing.T) {
	for reference, want := range map[string][2]string{
		"Qwen/Qwen3-8B":           {"Qwen3-8B", "Qwen/Qwen3-8B"},
		"Qwen/Qwen3-8B@refs/pr/1": {"Qwen3-8B", "Qwen/Qwen3-8B"},
		"/models/Qwen3-8B":        {"Qwen3-8B", ""},
		"/models/snapshots/x":     {"x", ""},
		"/models/Qwen3-8B.gguf":   {"Qwen3-8B", ""},
		"hub/models--a--b/snapshots/0123456789012345678901234567890123456789/": {"b", "a/b"},
		"hub/models--gpt2/snapshots/x":                                         {"gpt2", "gpt2"},
	} {
		if got := [2]string{Name(reference), ID(reference)}; got != want {
			t.Errorf("%s: %v, want %v", reference, got, want)
		}
	}
}

func TestNamesOfOneModel(t *testing.T) {
	const snapshot = "hub/models--a--b/snapshots/0123456789012345678901234567890123456789"
	for _, test := range []struct {
		name, reference string
		want            []string
	}{
		{"", "a/b", []string{"a/b"}}, {"", snapshot, []string{"a/b"}}, {"a/b", snapshot, []string{"b"}}, {"a/b", "none", []string{"b"}},
		{"c", "a/b", []string{"a/b"}}, {"b", "/models/b", nil}, {"", "", nil},
	} {
		if got := Aliases(test.name, test.reference); !slices.Equal(got, test.want) {
			t.Errorf("%q, %q: %q", test.name, test.reference, got)
		}
	}
	for pair, want := range map[[2]string]bool{{"a/b", "b"}: true, {"b", "a/b"}: true, {"b", "b"}: true, {"a/b", "c/b"}: false, {"a/b", "a"}: false, {"b", "c"}: false} {
		if got := Alike(pair[0], pair[1]); got != want {
			t.Errorf("%q: %v", pair, got)
		}
	}
}

func TestDirectoriesOfTheCache(t *testing.T) {
	for want, env := range map[string]environment{
		"/a":                        {"HF_HUB_CACHE": "/a", "HF_HOME": "/b", "XDG_CACHE_HOME": "/c", "HOME": "/d"},
		"/b/hub":                    {"HF_HOME": "/b", "XDG_CACHE_HOME": "/c", "HOME": "/d"},
		"/c/huggingface/hub":        {"XDG_CACHE_HOME": "/c", "HOME": "/d"},
		"/d/.cache/huggingface/hub": {"HOME": "/d"},
		"/d/x/v":                    {"HUGGINGFACE_HUB_CACHE": "~/x/$V", "HOME": "/d", "V": "v"},
	} {
		if got, err := cacheDirectory(env.options().Env); got != filepath.FromSlash(want) || err != nil {
			t.Errorf("%v: %s, want %s: %v", env, got, want, err)
		}
	}
	if got, err := cacheDirectory(environment{}.options().Env); err == nil {
		t.Error(got)
	}
}

// TestRefusalsSayWhatToDo: the hub's answers to strangers, to accounts without access, and to wrong ids.
func TestRefusalsSayWhatToDo(t *testing.T) {
	h := hubtest.New(t)
	gated, private := small(), small()
	gated.Gated, private.Private = true, true
	h.Add("acme/gated", gated)
	h.Add("acme/private", private)
	h.Add("acme/GGUF", hubtest.Model{Files: map[string]string{"x-Q4_K_M.gguf": "GGUF"}})
	h.Add("acme/slow", hubtest.Model{Files: map[string]string{"config.json": "{}", "vocab.txt": ""}})
	h.Add("acme/adapter", hubtest.Model{Files: map[string]string{"tokenizer.json": "{}"}})
	for _, test := range []struct{ id, token, want string }{
		{"acme/gated", "", "it is gated: ask for access on " + h.URL + "/acme/gated, and set HF_TOKEN"},
		{"acme/gated", "hf_somebody", "the account of the token has no access"},
		{"acme/gated", h.Token, ""},
		{"acme/private", "", "no such model that everybody may see"},
		{"acme/private", "hf_somebody", "does not exist"},
		{"acme/private", h.Token, ""},
		{"acme/unknown", "", "no such model that everybody may see"},
		{"acme/unknown", "hf_somebody", "does not exist"},
		{"acme/private", "bad", "refuses the token"},
		{"acme/private", "a b", "characters that a token cannot have"},
		{"acme/GGUF", "", "it has GGUF files"},
		{"acme/slow", "", "none of the tokenizers that Whence reads"},
		{"acme/adapter", "", "it has no config.json"},
	} {
		for _, file := range []bool{false, true} {
			e := newEnvironment(t, h)
			if e["HF_TOKEN"] = test.token; file {
				delete(e, "HF_TOKEN")
				e["HF_HOME"] = t.TempDir()
				if err := os.WriteFile(filepath.Join(e["HF_HOME"], "token"), []byte(test.token+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if test.want == "" {
				resolve(t, e, test.id)
			} else if text := refused(t, e, test.id); !strings.Contains(text, test.want) || !strings.HasPrefix(text, "model "+test.id+": ") {
				t.Errorf("%s with %q: %s", test.id, test.token, text)
			}
		}
	}
	e := newEnvironment(t, h)
	e["HF_TOKEN"], e["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = h.Token, "1"
	refused(t, e, "acme/private")
	e["HF_ENDPOINT"] = "http://127.0.0.1:1"
	if text := refused(t, e, id); !strings.Contains(text, "the hub at http://127.0.0.1:1 cannot be reached") || !strings.Contains(text, "connection refused") {
		t.Error(text)
	}
	e["HF_ENDPOINT"] = "http://user:secret@127.0.0.1:1"
	if text := refused(t, e, id); !strings.Contains(text, "http://user:xxxxx@127.0.0.1:1") || strings.Contains(text, "secret") {
		t.Error(text)
	}
	e["HF_ENDPOINT"] = "huggingface.co"
	if text := refused(t, e, id); !strings.Contains(text, "it must be a URL") {
		t.Error(text)
	}
}

// TestDownloadsAtOnceShareACache: each process finds whole files only, its own or those of another process.
func TestDownloadsAtOnceShareACache(t *testing.T) {
	h := hubtest.New(t)
	commit := h.Add(id, small())
	e := newEnvironment(t, h)
	for range 6 { // some find the rest of an earlier download
		h.Break("tokenizer.json", 100_000)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			path, err := Resolve(t.Context(), id, e.options())
			if err != nil || path != e.cache().snapshot(commit) {
				t.Error(path, err)
				return
			}
			if text, err := os.ReadFile(filepath.Join(path, "tokenizer.json")); string(text) != tokenizerText {
				t.Errorf("tokenizer.json has %d bytes: %v", len(text), err)
			}
		})
	}
	all.Wait()
	expectFiles(t, e.cache().snapshot(commit), small().Files, needed...)
	if left := leftovers(t, e["HOME"]); len(left) > 0 {
		t.Errorf("the cache has %v", left)
	}
}

func TestErrorsOfTheDiskSayWhatToDo(t *testing.T) {
	for err, want := range map[error]string{
		&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}: "is full",
		&fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS}:   "cannot be written to",
		&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}:  "cannot be written to",
	} {
		if text := explainDisk(err).Error(); !strings.Contains(text, want) || !strings.Contains(text, "HF_HUB_CACHE") {
			t.Error(text)
		}
	}
	h := hubtest.New(t)
	h.Add(id, small())
	e := newEnvironment(t, h)
	if err := os.WriteFile(e["HF_HUB_CACHE"], nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	if text := refused(t, e, id); !strings.Contains(text, "not a directory") {
		t.Error(text)
	}
}

func TestEndOfTheContextEndsADownload(t *testing.T) {
	h := hubtest.New(t)
	h.Add(id, small())
	e := newEnvironment(t, h)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped by the test")
	cancel(stopped)
	if _, err := Resolve(ctx, id, e.options()); !errors.Is(err, stopped) {
		t.Error(err)
	}
}
