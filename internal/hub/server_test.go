package hub

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/gguf"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// tinyFile is the GGUF file of whence-tiny.
const tinyFile = "../whencetiny/testdata/model-f32.gguf"

// metadata are what Ollama tells of a small model.
func metadata(change map[string]any) map[string]any {
	m := map[string]any{
		"general.architecture": "llama", "llama.context_length": 64, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe",
		"tokenizer.ggml.tokens": []string{"a", "b", "ab", "<|eot_id|>"}, "tokenizer.ggml.token_type": []int{1, 1, 1, 3},
		"tokenizer.ggml.merges": []string{"a b"}, "tokenizer.ggml.bos_token_id": 3, "tokenizer.ggml.add_bos_token": true,
		chatTemplate: "{% for m in messages %}{{ m.content }}{% endfor %}",
	}
	for key, value := range change {
		m[key] = value
	}
	return m
}

// showing returns an Ollama that shows a model.
func showing(t *testing.T, template string, metadata map[string]any) *Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Model   string
			Verbose bool
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.URL.Path != "/api/show" || !asked.Verbose || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("%s %+v: %v", r.URL, asked, err)
		}
		if asked.Model != "small" {
			http.Error(w, `{"error":"model 'x' not found"}`, http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"template": template, "model_info": metadata, "details": map[string]any{"family": "llama"}})
	}))
	t.Cleanup(server.Close)
	return &Server{URL: server.URL, Key: "k", Store: Store{Dir: t.TempDir()}}
}

func TestOllamaTellsTheWholeTokenizer(t *testing.T) {
	s := showing(t, "{{ .Prompt }}", metadata(nil))
	path, err := s.Ollama(t.Context(), "small")
	if err != nil {
		t.Fatal(err)
	}
	dir := os.DirFS(path)
	source, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := source.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	if ids := tok.Encode("aba", true); len(ids) != 3 || ids[0] != 3 || ids[1] != 2 || ids[2] != 0 {
		t.Error(ids)
	}
	for name, want := range map[string]string{
		"config.json": `"max_position_embeddings":64`, "generation_config.json": "[3]", "tokenizer_config.json": "messages",
	} {
		if text, err := fs.ReadFile(dir, name); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
	if again, err := s.Ollama(t.Context(), "small"); again != path || err != nil {
		t.Error(again, err)
	}
	if _, err := s.Ollama(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "model 'x' not found") {
		t.Error(err)
	}

	jinja := showing(t, "{% if x %}{% endif %}", metadata(map[string]any{chatTemplate: nil}))
	if path, err = jinja.Ollama(t.Context(), "small"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(path, templateFile)); !strings.HasPrefix(string(text), "{% if x") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestOllamasWithoutEnoughAreRefused(t *testing.T) {
	for want, change := range map[string]map[string]any{
		ErrNoTemplate.Error():       {chatTemplate: nil},
		"no tokenizer.ggml.tokens":  {"tokenizer.ggml.tokens": nil}, // as without verbose
		"the pre-tokenizer":         {"tokenizer.ggml.pre": "viking"},
		"no tokenizer.ggml.merges":  {"tokenizer.ggml.merges": nil},
		`tokenizer "bert" is not`:   {"tokenizer.ggml.model": "bert"},
		"neither texts nor numbers": {"tokenizer.ggml.tokens": []any{1, "a"}},
		"tokenizer cannot be read":  {"tokenizer.ggml.merges": []string{"a c"}},
		"context_length is -1":      {"llama.context_length": -1},
		"4 tokens and 0 scores":     {"tokenizer.ggml.model": "llama"},
	} {
		s := showing(t, "{{ .Prompt }}", metadata(change))
		path, err := s.Ollama(t.Context(), "small")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, %v", want, path, err)
		}
		if entries, _ := os.ReadDir(s.Store.Dir); len(entries) > 0 {
			t.Errorf("%q: the store has %v", want, entries)
		}
	}
}

// propertied returns a llama.cpp with these properties.
func propertied(t *testing.T, properties map[string]any) *Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/props" || r.Method != http.MethodGet {
			t.Error(r.Method, r.URL)
		}
		_ = json.NewEncoder(w).Encode(properties)
	}))
	t.Cleanup(server.Close)
	return &Server{URL: server.URL, Store: Store{Dir: t.TempDir()}}
}

func TestLlamaCPPNamesItsFile(t *testing.T) {
	file, err := filepath.Abs(tinyFile)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := gguf.Description(file)
	if err != nil {
		t.Fatal(err)
	}
	files, err := readAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, properties := range map[string]map[string]any{
		"the same template": {"model_path": file, "chat_template": templateOf(files)},
		"no template":       {"model_path": file},
		"a relative path":   {"model_path": tinyFile},
	} {
		if path, err := propertied(t, properties).LlamaCPP(t.Context()); path != file || err != nil {
			t.Errorf("%s: %s, %v", name, path, err)
		}
	}
	path, err := propertied(t, map[string]any{"model_path": file, "chat_template": "{% other %}"}).LlamaCPP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(path, templateFile)); string(text) != "{% other %}" {
		t.Errorf("%s, %v", text, err)
	}
	// A file of any name, as those that Ollama keeps.
	blob := filepath.Join(t.TempDir(), "sha256-0123")
	if err := os.Symlink(file, blob); err != nil {
		t.Fatal(err)
	}
	if path, err := propertied(t, map[string]any{"model_path": blob}).LlamaCPP(t.Context()); err != nil || path == blob {
		t.Error(path, err)
	}
	for want, properties := range map[string]map[string]any{
		"does not tell the path": {},
		"no such file":           {"model_path": "/nowhere/x.gguf"},
		"by the relative path":   {"model_path": "nowhere/x.gguf"},
		"does not begin with":    {"model_path": "server_test.go"},
	} {
		if path, err := propertied(t, properties).LlamaCPP(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v", want, path, err)
		}
	}
}

// TestARelativePathBeginsWhereTheServerRuns: llama-server -m model.gguf names its file like that. A proxy in front of it may
// have a path.
func TestARelativePathBeginsWhereTheServerRuns(t *testing.T) {
	const mark = "/under/a/path"
	if os.Getenv("WHENCE_TEST_LISTENS") != "" { // the server, a process of its own
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("http://%s%s\n", ln.Addr(), mark)
		t.Fatal(http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test
			if r.URL.Path != mark+"/props" {
				http.NotFound(w, r)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"model_path": "models/tiny.gguf"})
		})))
	}
	if runtime.GOOS != "linux" {
		t.Skip("the working directory of another process is known on Linux only")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(tinyFile)
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "models"), 0o700)
	}
	want := filepath.Join(dir, "models", "tiny.gguf")
	if err == nil {
		err = os.WriteFile(want, file, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	server := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	server.Dir, server.Env = dir, append(os.Environ(), "WHENCE_TEST_LISTENS=1")
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{URL: strings.TrimSpace(line), Store: Store{Dir: t.TempDir()}}
	if path, err := s.LlamaCPP(t.Context()); path != want || err != nil {
		t.Errorf("%s, %v", path, err)
	}
	if path := Beside(s.URL, "models/other.gguf"); path != "" {
		t.Error(path)
	}
}

// TestPathsOfOtherMachinesAreNotRead: the same path may have another file here.
func TestPathsOfOtherMachinesAreNotRead(t *testing.T) {
	file, err := filepath.Abs(tinyFile)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{URL: "http://gpu1:8080", Transport: handlerTransport{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"model_path": file})
	})}}
	if path, err := s.LlamaCPP(t.Context()); err == nil || !strings.Contains(err.Error(), "another machine") {
		t.Error(path, err)
	}
	for address, want := range map[string]bool{
		"http://localhost:1": true, "http://127.0.0.1:1": true, "http://127.8.8.8:1": true, "http://[::1]:1": true,
		"http://10.0.0.1:1": false, "http://localhost.test": false, "http://127.0.0.1.test": false, "": false, "http://[": false,
	} {
		if (&Server{URL: address}).isLocal() != want {
			t.Errorf("%s is local: %v", address, !want)
		}
	}
}

func TestRedirectsOfServersAreNotFollowed(t *testing.T) {
	s := &Server{URL: "http://127.0.0.1:1", Key: "k", Transport: handlerTransport{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host != "127.0.0.1:1" {
			t.Errorf("%s is asked", r.URL)
		}
		http.Redirect(w, r, "http://elsewhere.test/", http.StatusTemporaryRedirect)
	})}}
	if path, err := s.LlamaCPP(t.Context()); err == nil || !strings.Contains(err.Error(), "status 307") {
		t.Error(path, err)
	}
}

// An entry is a file of an archive.
type entry struct{ name, text string }

// archive returns a zip archive and its checksum.
func archive(t testing.TB, entries ...entry) (data []byte, sum string) {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		f, err := w.Create(e.name)
		if err == nil {
			_, err = io.WriteString(f, e.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(b.Bytes())
	return b.Bytes(), hex.EncodeToString(hash[:])
}

// tinyFiles are the files of whence-tiny.
func tinyFiles(t testing.TB) (entries []entry) {
	t.Helper()
	files, err := readAll(whencetiny.FS())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		entries = append(entries, entry{name, string(content)})
	}
	return entries
}

func TestArchiveOfAServerBecomesADirectory(t *testing.T) {
	entries := tinyFiles(t)
	more := append([]entry{{"../evil", "x"}, {"/etc/evil", "x"}, {"a/config.json", "x"}, {"special_tokens_map.json", "{}"}, {"x.jinja", ""}}, entries...)
	data, sum := archive(t, more...)
	s := Store{Dir: filepath.Join(t.TempDir(), "a", "store")}
	path, err := s.SaveArchive(data, sum)
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		for _, e := range entries {
			if text, err := os.ReadFile(filepath.Join(path, e.name)); string(text) != e.text {
				t.Errorf("%s has %d bytes: %v", e.name, len(text), err)
			}
		}
		if got, err := os.ReadDir(path); len(got) != len(entries) {
			t.Errorf("the directory has %v: %v", got, err)
		}
		if got, err := os.ReadDir(s.Dir); len(got) != 1 {
			t.Errorf("the store has %v: %v", got, err)
		}
	}
	check()
	// A changed file is written again, also by two processes at once.
	for _, change := range []func() error{
		func() error { return os.WriteFile(filepath.Join(path, "config.json"), nil, 0o600) },
		func() error { return os.WriteFile(filepath.Join(path, "chat_template.jinja"), []byte("evil"), 0o600) },
		func() error { return os.Remove(filepath.Join(path, "tokenizer.json")) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if again, err := s.SaveArchive(data, ""); again != path || err != nil {
					t.Error(again, err)
				}
			})
		}
		both.Wait()
		check()
	}
}

func TestHostileArchivesAreRefused(t *testing.T) {
	entries := tinyFiles(t)
	zeros := strings.Repeat("\x00", 33<<20)
	many := make([]entry, maxEntries+1)
	for want, files := range map[string][]entry{
		"no config.json":                   {{"x", ""}},
		"tokenizer cannot be read":         {{"config.json", "{}"}, {"tokenizer.json", "{}"}},
		"the directory has none of":        {{"config.json", "{}"}},
		"config.json twice":                {{"config.json", "{}"}, {"config.json", "{}"}},
		"it has more than 33554432 bytes":  append([]entry{{"chat_template.jinja", zeros}}, entries...),
		"has 1001 files; at most 1000 are": many,
	} {
		data, sum := archive(t, files...)
		s := Store{Dir: t.TempDir()}
		if path, err := s.SaveArchive(data, sum); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v", want, path, err)
		}
		if left, err := os.ReadDir(s.Dir); len(left) > 0 || err != nil {
			t.Errorf("%s: the store has %v: %v", want, left, err)
		}
	}
	data, _ := archive(t, entries...)
	if path, err := (Store{Dir: t.TempDir()}).SaveArchive(data, strings.Repeat("0", 64)); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Error(path, err)
	}
	if path, err := (Store{Dir: t.TempDir()}).SaveArchive(data[:len(data)/2], ""); !errors.Is(err, zip.ErrFormat) {
		t.Error(path, err)
	}
}

// FuzzArchive: no archive writes outside its directory, or makes a directory without a model.
func FuzzArchive(f *testing.F) {
	data, _ := archive(f, entry{"config.json", "{}"}, entry{"../x", "y"}, entry{"tokenizer.json", `{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`})
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		path, err := Store{Dir: filepath.Join(dir, "store")}.SaveArchive(data, "")
		if err == nil {
			if _, err := tokenizer.Open(os.DirFS(path)); err != nil || filepath.Dir(path) != filepath.Join(dir, "store") {
				t.Error(path, err)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 1 || len(left) == 1 && left[0].Name() != "store" {
			t.Error(left, err)
		}
	})
}

// FuzzShow: Ollama's answers become files that can be read, or an error.
func FuzzShow(f *testing.F) {
	text, err := json.Marshal(map[string]any{"template": "{{ .Prompt }}", "model_info": metadata(nil)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, answer []byte) {
		s := &Server{URL: "http://127.0.0.1:1", Store: Store{Dir: t.TempDir()}, Transport: handlerTransport{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(answer)
		})}}
		path, err := s.Ollama(t.Context(), "small")
		if err != nil {
			return
		}
		if _, err := tokenizer.Open(os.DirFS(path)); err != nil {
			t.Error(err)
		}
	})
}
