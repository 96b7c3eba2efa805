package e2e

import (
	"encoding/json"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/hub/hubtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/lab"
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

// tinyOfTheHub returns a hub that has the files of whence-tiny as acme/Small-1.
func tinyOfTheHub(t *testing.T) *hubtest.Hub {
	t.Helper()
	h := hubtest.New(t)
	files := map[string]string{}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		text, err := fs.ReadFile(whencetiny.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	h.Add("acme/Small-1", hubtest.Model{Files: files, Large: []string{"tokenizer.json"}})
	return h
}

// serveModel starts all services in one process, with a model of a hub and a cache.
func serveModel(t *testing.T, endpoint, cache, model string, more ...string) *process {
	t.Helper()
	args := []string{"--log-json", "--listen", "127.0.0.1:0", "--chat-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--engine", "sim", "--model", model}
	return startCommand(t, lab.Command{
		Name: "whence", File: binary(t, "whence"), Args: append(args, more...),
		Env: []string{"HF_ENDPOINT=" + endpoint, "HF_HUB_CACHE=" + cache, "HF_HOME=" + cache, "HF_TOKEN=", "NO_PROXY=127.0.0.1"},
	})
}

// TestModelOfTheHub: an id is enough, the first time with the hub and then without it.
func TestModelOfTheHub(t *testing.T) {
	t.Parallel()
	h, cache := tinyOfTheHub(t), t.TempDir()
	for _, start := range []func() *process{
		func() *process { return serveModel(t, h.URL, cache, "acme/Small-1") },
		func() *process { return serveModel(t, "http://127.0.0.1:1", cache, "acme/Small-1") },
		func() *process { return serveModel(t, h.URL, cache, "acme/Small-1@main", "--no-download") },
	} {
		p := start()
		w := &whence{topology: allInOne, processes: map[string]*process{}, api: p.listening(t), http: &http.Client{}}
		w.chat, w.worker = p.greeting(t)
		for _, name := range []string{"Small-1", "acme/Small-1"} {
			if answer := w.answer(t, greedy("Hi", "model", name, "max_tokens", 5)); answer == "" {
				t.Errorf("%s answers nothing", name)
			}
		}
		w.http.CloseIdleConnections()
		if downloads := len(p.lines("files of the model are downloaded")); downloads > 1 {
			t.Errorf("the files are downloaded %d times", downloads)
		}
		p.terminate(t)
		p.exit(t)
	}
	if asked := h.Requests(); len(asked) == 0 || slices.ContainsFunc(asked, func(r string) bool { return strings.Contains(r, "safetensors") }) {
		t.Errorf("the hub was asked %v", asked)
	}
}

// TestModelsThatTheHubLacksEndTheStart: with a sentence.
func TestModelsThatTheHubLacksEndTheStart(t *testing.T) {
	t.Parallel()
	h := tinyOfTheHub(t)
	for _, test := range []struct{ endpoint, model, flag, want string }{
		{h.URL, "acme/Small-2", "", "the hub has no such model"},
		{"http://127.0.0.1:1", "acme/Small-1", "", "cannot be reached"},
		{h.URL, "acme/Small-1", "--no-download", "--no-download forbids"},
		{h.URL, "acme/Small-1", "--engine embedded", "run `hf download acme/Small-1` first"},
	} {
		p := serveModel(t, test.endpoint, t.TempDir(), test.model, strings.Fields(test.flag)...)
		p.exitWith(t, 1)
		if log := p.Log.String(); !strings.Contains(log, test.want) {
			t.Errorf("%s: no %q in %s", test.model, test.want, log)
		}
	}
}

// TestSignalEndsADownload: a signal ends a process that waits for a hub.
func TestSignalEndsADownload(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	p := serveModel(t, silent.URL, t.TempDir(), "acme/Small-1")
	polltest.Receive(t, "a request of the process", begun)
	p.terminate(t)
	p.exitWith(t, 1)
	if log := p.Log.String(); !strings.Contains(log, "the process got terminated") {
		t.Error(log)
	}
}
