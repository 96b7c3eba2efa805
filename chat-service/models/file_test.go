package models

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/hub/hubtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/rpc"
)

var defaults = Card{Workers: "d:1", Policy: "round-robin", Migrations: 3, MigrateAfter: 10 * time.Second, Timers: rpc.Timers{FirstToken: 150 * time.Second, Stall: 40 * time.Second}}

func TestCardsOverrideTheFlags(t *testing.T) {
	cards, err := parse([]byte(`
models:
  - name: all
    aliases: [gpt-4o, default]
    directory: llama
    template: /templates/t.jinja
    context: 8192
    eos: [1, 2]
    workers: [a:1, b:2]
    policy: least-loaded
    migrations: 0
    migrate-after: 2s
    deadline: 5m
    first-token-timeout: 1m
    stall-timeout: 20s
  - directory: /models/qwen
  - workers: etcd://e:2379/whence/workers
`), "/etc/whence/models.yaml", defaults)
	if err != nil {
		t.Fatal(err)
	}
	all := Card{
		Name: "all", Aliases: []string{"gpt-4o", "default"}, Directory: "/etc/whence/llama", Template: "/templates/t.jinja", Context: 8192, EOS: []uint32{1, 2},
		Workers: "a:1,b:2", Policy: "least-loaded", MigrateAfter: 2 * time.Second,
		Timers: rpc.Timers{Deadline: 5 * time.Minute, FirstToken: time.Minute, Stall: 20 * time.Second},
	}
	qwen, tiny := defaults, defaults
	qwen.Directory, tiny.Workers = "/models/qwen", "etcd://e:2379/whence/workers"
	for i, want := range []Card{all, qwen, tiny} {
		if got, want := fmt.Sprintf("%+v", cards[i]), fmt.Sprintf("%+v", want); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if cards[1].ID() != "qwen" || cards[2].ID() != "whence-tiny" {
		t.Error(cards)
	}
}

func TestExampleInTheDocsIsValid(t *testing.T) {
	doc, err := os.ReadFile("../../docs/howto/models.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	cards, err := parse([]byte(text), "docs.yaml", defaults)
	if err != nil || len(cards) != 2 || cards[0].ID() != "llama-3.1-8b" || cards[1].Workers != "10.0.0.1:8082,10.0.0.2:8082" {
		t.Error(cards, err)
	}
}

func TestInvalidFilesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":           "EOF",
		"models: []": "there are no models",
		"models: [{name: a}]\n---\nmodels: [{name: b}]": "there is more than one document",
		"models: 7":                                   "cannot unmarshal",
		"model: []":                                   "field model not found",
		"models: [{nom: x}]":                          "field nom not found",
		"models: [{context: -1}]":                     "must not be negative",
		"models: [{migrate-after: soon}]":             "cannot unmarshal",
		"models: [{migrate-after: 1m}]":               "", // a lone worker is never left
		"models: [{policy: best}]":                    `model "whence-tiny": policy: there is no policy "best"`,
		"models: [{workers: h}]":                      "workers: address h: missing port",
		"models: [{workers: [{}]}]":                   "cannot unmarshal",
		"models: [{}, {}]":                            `the name "whence-tiny" is used twice`,
		"models: [{aliases: ['']}]":                   "must be UTF-8 of 1 to 128 bytes",
		"models: [{stall-timeout: -1s}]":              "stall-timeout and idle-timeout must not be negative",
		"models: [" + strings.Repeat("{},", 65) + "]": "at most 64 are allowed",
	} {
		_, err := parse([]byte(text), "m.yaml", defaults)
		if want == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "m.yaml: ") {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
	large := filepath.Join(t.TempDir(), "large.yaml")
	write(t, large, strings.Repeat("#", maxFile+1))
	if _, err := read(large); err == nil || !strings.Contains(err.Error(), "are allowed") {
		t.Error(err)
	}
}

func FuzzCards(f *testing.F) {
	f.Add("models: [{name: x, workers: [a:1], eos: [1], migrate-after: 1s}]")
	f.Add("models: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		cards, err := parse([]byte(text), "m.yaml", defaults)
		if err == nil && (len(cards) == 0 || len(cards) > maxModels) {
			t.Error(len(cards))
		}
	})
}

// TestCardsNameModelsOfTheHub: an id is fetched at each load unless the cache has it, and is an alias.
func TestCardsNameModelsOfTheHub(t *testing.T) {
	h := hubtest.New(t)
	files := map[string]string{}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"} {
		text, err := fs.ReadFile(whencetiny.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	h.Add("acme/Small-1", hubtest.Model{Files: files}, "v1")
	h.Add("acme/other", hubtest.Model{Files: files})
	t.Setenv("HF_ENDPOINT", h.URL)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	r, _ := open(t)
	r.Load = nil // the files are those of a model
	f := &File{Path: filepath.Join(t.TempDir(), "models.yaml"), Defaults: defaults}
	if err := os.MkdirAll(filepath.Join(filepath.Dir(f.Path), "acme", "here"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, f.Path, "models: [{directory: acme/Small-1, workers: 'h:1'}, {name: pinned, directory: acme/Small-1@v1, workers: 'h:2'}]")
	if err := f.Check(); err != nil {
		t.Error(err)
	}
	if asked := h.Requests(); len(asked) > 0 {
		t.Errorf("a check asks the hub: %v", asked)
	}
	if err := f.Load(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, m := range r.Models() {
		names[m.GetId()] = strings.Join(m.GetAliases(), ",")
	}
	if len(names) != 2 || names["Small-1"] != "acme/Small-1" || names["pinned"] != "" {
		t.Error(names)
	}
	f.Defaults.NoDownload = true
	for text, want := range map[string]string{
		"models: [{directory: acme/other, workers: 'h:1'}]": "model other: its configuration and tokenizer are not in",
		"models: [{directory: acme/here, workers: 'h:1'}]":  "model here: open config.json", // a directory wins
		"models: [{directory: here, workers: 'h:1'}]":       "no such file",
	} {
		write(t, f.Path, text)
		if err := f.Load(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if len(r.Models()) != 2 {
		t.Error("the previous models are gone")
	}
}

// follow follows a file until the test ends. results returns the outcomes of its loads.
func follow(t *testing.T, f *File, r *Registry) (results func() string) {
	t.Helper()
	if err := f.Load(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []string
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		f.Follow(ctx, r, func(taken bool) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, strconv.FormatBool(taken))
		})
	})
	t.Cleanup(func() {
		cancel()
		following.Wait()
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, " ")
	}
}

func TestFileIsFollowed(t *testing.T) {
	a, b := work(t, "w/a", "a", nil), work(t, "w/b", "b", nil)
	r, j := open(t)
	path := filepath.Join(t.TempDir(), "models.yaml")
	one := "models: [{name: a, workers: " + a.addr + "}]\n"
	two := one[:len(one)-2] + ", {name: b, workers: " + b.addr + "}]\n"
	write(t, path, one)
	results := follow(t, &File{Path: path, Defaults: defaults}, r)
	healthy(t, r, 1)
	write(t, path, two)
	polltest.Eventually(t, "it is read again", func() bool { return results() == "true" })
	healthy(t, r, 2)
	write(t, path, "models: [{nom: a}]")
	polltest.Eventually(t, "it is refused", func() bool { return results() == "true false" })
	if j.Count("models are refused") != 1 || j.Count("field nom not found") != 1 || len(r.Models()) != 2 {
		t.Error(results(), j)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "it is missed once", func() bool { return results() == "true false false" })
	write(t, path, one)
	polltest.Eventually(t, "it is back", func() bool { return results() == "true false false true" })
	if len(r.Models()) != 1 {
		t.Error(r.Models())
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "it is read for the signal", func() bool { return results() == "true false false true true" })
}

// TestChangeIsSeenOnce: neither a broken nor a missing file is loaded again and again.
func TestChangeIsSeenOnce(t *testing.T) {
	r, _ := open(t)
	f := &File{Path: filepath.Join(t.TempDir(), "models.yaml"), Defaults: defaults}
	write(t, f.Path, "models: [{name: a, workers: 'h:1'}]")
	if err := f.Load(t.Context(), r); err != nil || f.changed() {
		t.Fatal("a file without a change has changed:", err)
	}
	write(t, f.Path, "models: [{nom: a}]")
	if !f.changed() || f.Load(t.Context(), r) == nil || f.changed() {
		t.Error("a broken file does not change once")
	}
	if err := os.Remove(f.Path); err != nil {
		t.Fatal(err)
	}
	if !f.changed() || f.Load(t.Context(), r) == nil || f.changed() {
		t.Error("a missing file does not change once")
	}
	write(t, f.Path, "models: [{name: a, workers: 'h:1'}]")
	if !f.changed() {
		t.Error("a file that is back has not changed")
	}
}

func TestFileIsFollowedThroughSwappedDirectories(t *testing.T) {
	r, _ := open(t)
	dir := t.TempDir()
	for version, name := range map[string]string{"v1": "a", "v2": "b"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "models.yaml"), "models: [{name: "+name+", workers: 'h:1'}]")
	}
	link := func(version string) { // atomically, as in a cluster
		t.Helper()
		if err := os.Symlink(version, filepath.Join(dir, "..new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	link("v1")
	path := filepath.Join(dir, "models.yaml")
	if err := os.Symlink(filepath.Join("..data", "models.yaml"), path); err != nil {
		t.Fatal(err)
	}
	results := follow(t, &File{Path: path, Defaults: defaults}, r)
	link("v2")
	polltest.Eventually(t, "the other version is served", func() bool { return results() == "true" && r.Models()[0].GetId() == "b" })
}
