package hub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/internal/hub/hubtest"
	"github.com/whence-dev/whence/internal/modelfile"
)

// ranges returns the ranges that were asked for; the same one of two servers counts once.
func ranges(h *hubtest.Hub) (all []string) {
	for _, r := range h.Requests() {
		if _, at, ok := strings.Cut(r, "bytes="); ok {
			all = append(all, at)
		}
	}
	return slices.Compact(all)
}

func TestBrokenDownloadGoesOn(t *testing.T) {
	h := hubtest.New(t)
	h.Add(id, small())
	h.Break("tokenizer.json", 1000, 70_000)
	h.Break("tokenizer_config.json", 5)
	e := newEnvironment(t, h)
	expectFiles(t, resolve(t, e, id), small().Files, needed...)
	if got := ranges(h); !slices.Equal(got, []string{"5-", "1000-", "71000-"}) {
		t.Errorf("asked for %v", got)
	}
}

// TestNextDownloadGoesOn: what a process has left is not downloaded again, unless it is wrong. In
// virtual time.
func TestNextDownloadGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hubtest.NewHub()
		m := small()
		m.Large = nil
		h.Add(id, m)
		interrupt := func() (e environment, remains string) {
			t.Helper()
			dir := t.TempDir()
			e = environment{"HF_HUB_CACHE": dir, "HOME": dir}
			h.Break("tokenizer.json", 100_000, 0, 0, 0)
			if _, err := Resolve(t.Context(), id, e.local(h)); err == nil || !strings.Contains(err.Error(), "tokenizer.json: the hub at") {
				t.Error(err)
			}
			left := leftovers(t, dir)
			if len(left) != 1 || !strings.HasSuffix(left[0], ".whence.incomplete") {
				t.Fatalf("the cache has %v", left)
			}
			h.Requests()
			return e, filepath.Join(e.cache().root, "blobs", left[0])
		}
		expect := func(e environment, asked ...string) {
			t.Helper()
			path, err := Resolve(t.Context(), id, e.local(h))
			if err != nil {
				t.Fatal(err)
			}
			expectFiles(t, path, m.Files, needed...)
			if left := leftovers(t, e["HOME"]); len(left) > 0 {
				t.Errorf("the cache has %v", left)
			}
			if got := ranges(h); !slices.Equal(got, asked) {
				t.Errorf("asked for %v, want %v", got, asked)
			}
		}
		e, _ := interrupt()
		expect(e, "100000-")
		for remains, asked := range map[string][]string{
			strings.Repeat("x", 100_000):            {"100000-"},
			tokenizerText + "more":                  {"240004-"},
			strings.Repeat("x", len(tokenizerText)): nil,
			tokenizerText:                           nil,
		} {
			e, at := interrupt()
			if err := os.WriteFile(at, []byte(remains), 0o600); err != nil {
				t.Fatal(err)
			}
			expect(e, asked...)
		}
	})
}

func TestWrongChecksumIsRefused(t *testing.T) {
	h := hubtest.New(t)
	h.Add(id, small())
	for _, name := range []string{"tokenizer.json", "config.json"} { // SHA-256, and Git's
		h.Corrupt(name, true)
		e := newEnvironment(t, h)
		if text := refused(t, e, id); !strings.Contains(text, name+": it has not the checksum") {
			t.Error(text)
		}
		if left := leftovers(t, e["HOME"]); len(left) > 0 {
			t.Errorf("the cache has %v", left)
		}
		h.Corrupt(name, false)
		expectFiles(t, resolve(t, e, id), small().Files, needed...)
	}
}

// A handlerTransport answers with a handler, without a network.
type handlerTransport struct{ http.Handler }

func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	broken := func() (aborted bool) {
		defer func() { aborted = recover() != nil }()
		h.ServeHTTP(w, r)
		return false
	}()
	resp := w.Result()
	resp.Request = r
	if broken {
		resp.Body = io.NopCloser(io.MultiReader(resp.Body, iotest.ErrReader(io.ErrUnexpectedEOF)))
	}
	return resp, nil
}

// local returns options for a hub without a network.
func (e environment) local(h http.Handler) Options {
	o := e.options()
	o.Transport = handlerTransport{h}
	return o
}

func TestFilesAreBounded(t *testing.T) {
	hub := hubtest.NewHub()
	m := small()
	m.Large = nil
	hub.Add(id, m)
	for name, change := range map[string]func(http.Header){
		"has 33554433 bytes; at most": func(head http.Header) { head.Set("X-Linked-Size", fmt.Sprint(modelfile.MaxOther+1)) },
		"sends more than the 3 bytes": func(head http.Header) { head.Set("X-Linked-Size", "3") },
		"without a valid ETag":        func(head http.Header) { head.Set("X-Linked-Etag", `"../../x"`) },
		"instead of":                  func(head http.Header) { head.Set("X-Repo-Commit", strings.Repeat("0", 40)) },
	} {
		e := environment{"HF_HUB_CACHE": t.TempDir()}
		_, err := Resolve(t.Context(), id, e.local(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hub.ServeHTTP(&headWriter{w, func(head http.Header) {
				if strings.HasSuffix(r.URL.Path, "generation_config.json") {
					change(head)
				}
			}}, r)
		})))
		if err == nil || !strings.Contains(err.Error(), "generation_config.json") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A headWriter changes the head of an answer.
type headWriter struct {
	http.ResponseWriter
	change func(http.Header)
}

func (w *headWriter) WriteHeader(status int) {
	w.change(w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// TestMirrorsNeedNoChecksums: a mirror may have ETags of its own, and send no sizes.
func TestMirrorsNeedNoChecksums(t *testing.T) {
	hub := hubtest.NewHub()
	m := small()
	m.Large = nil
	hub.Add(id, m)
	e := environment{"HF_HUB_CACHE": t.TempDir(), "HF_ENDPOINT": "https://mirror.test/hf/"}
	path, err := Resolve(t.Context(), id, e.local(http.StripPrefix("/hf", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/resolve/") {
			name := filepath.Base(r.URL.Path)
			w.Header().Set("Etag", `W/"mirror-`+strings.ReplaceAll(name, ".", "-")+`"`)
			_, _ = w.Write([]byte(m.Files[name]))
			return
		}
		hub.ServeHTTP(w, r)
	}))))
	if err != nil {
		t.Fatal(err)
	}
	expectFiles(t, path, m.Files, needed...)
}

func TestTokenStaysAtTheHub(t *testing.T) {
	h := hubtest.New(t)
	h.Add(id, small())
	e := newEnvironment(t, h)
	e["HF_TOKEN"] = h.Token
	resolve(t, e, id)
	with := 0
	for _, r := range h.Requests() {
		token := strings.HasSuffix(r, "with a token")
		if large := strings.HasPrefix(r, "GET /acme/Small-1/") && !strings.Contains(r, "/resolve/"); large == token {
			t.Errorf("%s", r)
		}
		if token {
			with++
		}
	}
	if with < 8 {
		t.Errorf("%d requests had the token", with)
	}
}

// TestRedirectsAreBounded: neither endless nor to an address without TLS.
func TestRedirectsAreBounded(t *testing.T) {
	for to, want := range map[string]string{"/again": "redirects more than 10 times", "http://elsewhere.test/": "redirects from https to http", "": "without a valid address"} {
		e := environment{"HF_HUB_CACHE": t.TempDir()}
		_, err := Resolve(t.Context(), id, e.local(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		})))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", to, err)
		}
	}
}

// TestBusyHubIsAskedAgain: in virtual time.
func TestBusyHubIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := hubtest.NewHub()
		m := small()
		m.Large = nil
		hub.Add(id, m)
		left := 2
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if left--; left >= 0 {
				w.Header().Set("X-Error-Message", "come back later")
				w.WriteHeader([]int{http.StatusTooManyRequests, http.StatusBadGateway}[left%2])
				return
			}
			hub.ServeHTTP(w, r)
		})
		e := environment{"HF_HUB_CACHE": t.TempDir()}
		begun := time.Now()
		path, err := Resolve(t.Context(), id, e.local(handler))
		if err != nil {
			t.Fatal(err)
		}
		expectFiles(t, path, m.Files, needed...)
		if took := time.Since(begun); took != 3*firstPause {
			t.Errorf("it took %v", took)
		}
		e["HF_HUB_CACHE"], left = t.TempDir(), 1000
		if _, err := Resolve(t.Context(), id, e.local(handler)); err == nil || !strings.Contains(err.Error(), "status 502: come back later") && !strings.Contains(err.Error(), "limits the requests") {
			t.Error(err)
		}
	})
}

// TestShortAnswersEnd: a server that ignores ranges and never sends the whole file is not asked forever.
// In virtual time.
func TestShortAnswersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := hubtest.NewHub()
		hub.Add(id, small())
		e := environment{"HF_HUB_CACHE": t.TempDir()}
		_, err := Resolve(t.Context(), id, e.local(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/api/") {
				hub.ServeHTTP(w, r)
				return
			}
			w.Header().Set("X-Linked-Etag", "etag")
			w.Header().Set("X-Linked-Size", "100")
			_, _ = w.Write([]byte("abc"))
		})))
		if err == nil || !strings.Contains(err.Error(), "config.json: the hub at") {
			t.Error(err)
		}
	})
}

// A silentBody sends a little, and then nothing until it is closed.
type silentBody struct {
	io.Reader
	closed chan struct{}
}

func (b *silentBody) Read(p []byte) (int, error) {
	if n, err := b.Reader.Read(p); err == nil {
		return n, nil
	}
	<-b.closed
	return 0, fs.ErrClosed
}

func (b *silentBody) Close() error {
	select {
	case <-b.closed:
	default:
		close(b.closed)
	}
	return nil
}

// A silentTransport makes the answers with one file silent.
type silentTransport struct {
	http.RoundTripper
	name  string
	asked []string
}

func (s *silentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, s.name) && resp.StatusCode < 300 {
		s.asked = append(s.asked, r.Header.Get("Range"))
		if len(s.asked) == 1 {
			resp.Body = &silentBody{io.LimitReader(resp.Body, 1234), make(chan struct{})}
		}
	}
	return resp, err
}

// TestSilentDownloadGoesOn: a connection that sends nothing is replaced. In virtual time.
func TestSilentDownloadGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := hubtest.NewHub()
		m := small()
		m.Large = nil
		hub.Add(id, m)
		e := environment{"HF_HUB_CACHE": t.TempDir()}
		o := e.local(hub)
		silent := &silentTransport{RoundTripper: o.Transport, name: "tokenizer.json"}
		o.Transport = silent
		begun := time.Now()
		path, err := Resolve(t.Context(), id, o)
		if err != nil {
			t.Fatal(err)
		}
		expectFiles(t, path, m.Files, needed...)
		if took := time.Since(begun); took != stallTimeout || !slices.Equal(silent.asked, []string{"", "bytes=1234-"}) {
			t.Errorf("asked for %q in %v", silent.asked, took)
		}
	})
}

// TestProgressIsDrawn: one line on a terminal, which is removed.
func TestProgressIsDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := hubtest.NewHub()
		m := small()
		m.Large = nil
		hub.Add(id, m)
		e := environment{"HF_HUB_CACHE": t.TempDir()}
		var terminal bytes.Buffer
		o := e.local(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			hub.ServeHTTP(w, r)
		}))
		o.Progress = &terminal
		if _, err := Resolve(t.Context(), id, o); err != nil {
			t.Fatal(err)
		}
		if drawn := terminal.String(); !strings.Contains(drawn, "\rfetching acme/Small-1 [") || !strings.HasSuffix(drawn, "\r\x1b[K") {
			t.Errorf("%q", drawn)
		}
	})
}

// FuzzHub: whatever a hub answers, nothing is written outside the cache, and what is served as a
// model has the files of one.
func FuzzHub(f *testing.F) {
	commit := strings.Repeat("a", 40)
	list := `{"sha":"` + commit + `","siblings":[{"rfilename":"config.json"},{"rfilename":"tokenizer.json"},{"rfilename":"../x"}]}`
	f.Add(200, list, 200, "etag", "", "{}", "", 3)
	f.Add(200, list, 302, "0123456789012345678901234567890123456789", "2", "{}", "/x", 3)
	f.Add(401, "GatedRepo", 500, `W/"../../../x"`, "-1", "", "https://x.test", 1)
	f.Fuzz(func(t *testing.T, status int, list string, fileStatus int, etag, size, body, location string, broken int) {
		if status < 200 || status > 599 || fileStatus < 200 || fileStatus > 599 {
			t.Skip() // no server sends it
		}
		synctest.Test(t, func(t *testing.T) { // pauses cost nothing
			dir := t.TempDir()
			e := environment{"HF_HUB_CACHE": filepath.Join(dir, "in", "hub"), "HF_TOKEN": "secret"}
			count := 0
			path, err := Resolve(t.Context(), id, e.local(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if auth := r.Header.Get("Authorization"); (auth != "") != (r.URL.Host == "huggingface.co") {
					t.Errorf("%s has the token %q", r.URL, auth)
				}
				if strings.HasPrefix(r.URL.Path, "/api/") {
					w.Header().Set("X-Error-Code", list)
					w.WriteHeader(status)
					_, _ = w.Write([]byte(list))
					return
				}
				count++
				w.Header().Set("Location", location)
				w.Header().Set("X-Linked-Etag", etag)
				w.Header().Set("X-Linked-Size", size)
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-", broken))
				if count <= broken {
					w.WriteHeader(fileStatus)
				}
				_, _ = w.Write([]byte(body))
			})))
			if err == nil {
				c := e.cache()
				if at := filepath.Base(path); path != c.snapshot(at) || !commitForm.MatchString(at) || !c.usable(at) {
					t.Errorf("the model is at %s", path)
				}
			}
			entries, dirErr := os.ReadDir(dir)
			if dirErr != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "in" {
				t.Errorf("the directory has %v: %v", entries, dirErr)
			}
			if inside, err := os.ReadDir(filepath.Join(dir, "in")); err == nil && len(inside) > 1 || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the directory has %v: %v", inside, err)
			}
		})
	})
}
