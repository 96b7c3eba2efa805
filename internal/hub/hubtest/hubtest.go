// Package hubtest is a Hugging Face hub of a test: it describes models, redirects to where their files
// are stored, and asks for tokens as the real hub does. A test can break its answers.
package hubtest

import (
	"crypto/sha1" //nolint:gosec // the names of files in Git
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Model is a model of the hub, at one commit.
type Model struct {
	Files   map[string]string // content by name
	Large   []string          // files that are stored on another server, as those in Git LFS are
	Gated   bool              // only Token may read the files
	Private bool              // only Token may know of the model
}

// A Hub is a hub and the server of its large files. Its methods can be called at any time.
type Hub struct {
	URL   string // for HF_ENDPOINT
	CDN   string // the address of large files
	Token string // of the account that may see everything; other tokens have no access

	mu       sync.Mutex
	commits  map[string]map[string]Model  // by id and commit
	branches map[string]map[string]string // commits, by id and revision
	broken   map[string][]int             // by file: after how many bytes the next answers end
	corrupt  map[string]bool              // files with a wrong byte
	requests []string
}

// New starts a hub, which ends with the test.
func New(t testing.TB) *Hub {
	h := NewHub()
	hub, cdn := httptest.NewServer(h), httptest.NewServer(http.HandlerFunc(h.serveLarge))
	t.Cleanup(hub.Close)
	t.Cleanup(cdn.Close)
	h.URL, h.CDN = hub.URL, cdn.URL
	return h
}

// NewHub returns a hub that does not listen. It is an http.Handler.
func NewHub() *Hub {
	return &Hub{
		Token: "hf_owner", commits: map[string]map[string]Model{}, branches: map[string]map[string]string{},
		broken: map[string][]int{}, corrupt: map[string]bool{},
	}
}

// Add makes m the newest commit of the branch main, and of the other revisions. It returns the commit.
func (h *Hub) Add(id string, m Model, revisions ...string) (commit string) {
	sum := sha1.New() //nolint:gosec // as above
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		_, _ = fmt.Fprintf(sum, "%s\x00%s\x00", name, m.Files[name])
	}
	commit = hex.EncodeToString(sum.Sum(nil))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.commits[id] == nil {
		h.commits[id], h.branches[id] = map[string]Model{}, map[string]string{}
	}
	h.commits[id][commit] = m
	for _, revision := range append(revisions, "main", commit) {
		h.branches[id][revision] = commit
	}
	return commit
}

// Break ends the next answers with the file early, one after each number of bytes.
func (h *Hub) Break(name string, after ...int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken[name] = append(h.broken[name], after...)
}

// Corrupt sends the file with a wrong byte from now on, or no longer.
func (h *Hub) Corrupt(name string, wrong bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.corrupt[name] = wrong
}

// Requests returns the requests since the last call: method, path, Range, and "with a token".
func (h *Hub) Requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.requests
	h.requests = nil
	return all
}

func (h *Hub) note(r *http.Request) {
	line := r.Method + " " + r.URL.Path
	if at := r.Header.Get("Range"); at != "" {
		line += " " + at
	}
	if r.Header.Get("Authorization") != "" {
		line += " with a token"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, line)
}

// find returns a model as the sender of r may see it, or answers with an error.
func (h *Hub) find(w http.ResponseWriter, r *http.Request, id, revision string, files bool) (m Model, commit string, ok bool) {
	h.mu.Lock()
	commit, known := h.branches[id][revision]
	m = h.commits[id][commit]
	newest := h.commits[id][h.branches[id]["main"]]
	h.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	owner := token == h.Token
	switch {
	case strings.HasPrefix(token, "bad"):
		refuse(w, http.StatusUnauthorized, "", "Invalid credentials in Authorization header")
	case (newest.Files == nil || newest.Private && !owner) && token == "":
		refuse(w, http.StatusUnauthorized, "RepoNotFound", "Invalid username or password.")
	case newest.Files == nil || newest.Private && !owner:
		refuse(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
	case !known:
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
	case files && m.Gated && token == "":
		refuse(w, http.StatusUnauthorized, "GatedRepo", "Access to model "+id+" is restricted. You must have access to it and be authenticated to access it.")
	case files && m.Gated && !owner:
		refuse(w, http.StatusForbidden, "GatedRepo", "Access to model "+id+" is restricted and you are not in the authorized list.")
	default:
		return m, commit, true
	}
	return m, commit, false
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", message)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": message}) // the client may have gone
}

// ServeHTTP serves the hub.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.note(r)
	path, err := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), "/"))
	parts := strings.Split(path, "/")
	switch {
	case err != nil || len(parts) < 5:
		http.NotFound(w, r)
	case parts[0] == "api" && parts[1] == "models" && len(parts) >= 6:
		h.describe(w, r, parts[2]+"/"+parts[3], parts[4], strings.Join(parts[5:], "/"))
	case parts[0] == "api" && parts[1] == "resolve-cache" && len(parts) >= 7:
		h.serveFile(w, r, parts[3]+"/"+parts[4], parts[5], strings.Join(parts[6:], "/"), true)
	case parts[2] == "resolve":
		h.serveFile(w, r, parts[0]+"/"+parts[1], parts[3], strings.Join(parts[4:], "/"), false)
	default:
		http.NotFound(w, r)
	}
}

// describe answers with the description of a commit, or with the tree of its files.
func (h *Hub) describe(w http.ResponseWriter, r *http.Request, id, form, revision string) {
	m, commit, ok := h.find(w, r, id, revision, false)
	if !ok {
		return
	}
	siblings, tree := []map[string]any{}, []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		text := m.Files[name]
		siblings = append(siblings, map[string]any{"rfilename": name})
		entry := map[string]any{"type": "file", "path": name, "size": len(text), "oid": gitName(text)}
		if slices.Contains(m.Large, name) {
			entry["lfs"] = map[string]any{"oid": digest(text), "size": len(text), "pointerSize": 134}
		}
		tree = append(tree, entry)
	}
	var answer any = tree
	if form == "revision" {
		answer = map[string]any{"_id": commit[:24], "id": id, "modelId": id, "sha": commit, "private": m.Private, "gated": m.Gated, "siblings": siblings, "tags": []string{}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}

// serveFile answers with a file, or with a redirect to it: of small files to a cache of the hub, except
// for config.json, and of large ones to the other server.
func (h *Hub) serveFile(w http.ResponseWriter, r *http.Request, id, revision, name string, cached bool) {
	m, commit, ok := h.find(w, r, id, revision, true)
	if !ok {
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	text, ok := m.Files[name]
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
	case slices.Contains(m.Large, name):
		sum := digest(text)
		w.Header().Set("X-Linked-Etag", `"`+sum+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(text)))
		http.Redirect(w, r, h.CDN+"/"+url.PathEscape(id)+"/"+commit+"/"+name+"?signature=secret", http.StatusFound)
	case name != "config.json" && !cached:
		w.Header().Set("X-Linked-Etag", `"`+gitName(text)+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(text)))
		http.Redirect(w, r, "/api/resolve-cache/models/"+id+"/"+commit+"/"+name, http.StatusTemporaryRedirect)
	default:
		w.Header().Set("Etag", `"`+gitName(text)+`"`)
		h.send(w, r, name, text)
	}
}

// serveLarge is the other server. As that of the real hub, it refuses a second kind of authentication.
func (h *Hub) serveLarge(w http.ResponseWriter, r *http.Request) {
	h.note(r)
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 4)
	if len(parts) < 4 || r.Header.Get("Authorization") != "" || r.URL.Query().Get("signature") == "" {
		http.Error(w, "Only one auth mechanism allowed", http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	text, ok := h.commits[parts[0]+"/"+parts[1]][parts[2]].Files[parts[3]]
	h.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Etag", `"of-the-store"`)
	h.send(w, r, parts[3], text)
}

// send answers with a file or a range of it.
func (h *Hub) send(w http.ResponseWriter, r *http.Request, name, text string) {
	h.mu.Lock()
	if h.corrupt[name] && text != "" {
		text = text[:len(text)-1] + string(text[len(text)-1]^1)
	}
	end := -1
	if left := h.broken[name]; len(left) > 0 && r.Method == http.MethodGet {
		end, h.broken[name] = left[0], left[1:]
	}
	h.mu.Unlock()
	if end >= 0 {
		w = &brokenWriter{w, end}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
}

// A brokenWriter breaks the connection after some bytes of a body.
type brokenWriter struct {
	http.ResponseWriter
	left int
}

func (w *brokenWriter) Write(b []byte) (int, error) {
	n := min(w.left, len(b))
	written, err := w.ResponseWriter.Write(b[:n])
	w.left -= written
	if err == nil && n < len(b) {
		_ = http.NewResponseController(w.ResponseWriter).Flush() // the bytes arrive before the end
		panic(http.ErrAbortHandler)
	}
	return written, err
}

// gitName returns the name of a file's content in Git.
func gitName(text string) string {
	return hex.EncodeToString(sum1(fmt.Sprintf("blob %d\x00%s", len(text), text)))
}

func sum1(text string) []byte {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return sum[:]
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Files returns the files of a small model with this tokenizer.json.
func Files(tokenizer string) map[string]string {
	return map[string]string{
		"config.json":            `{"max_position_embeddings":1024,"vocab_size":1536}`,
		"generation_config.json": `{"eos_token_id":0}`,
		"tokenizer_config.json":  `{"chat_template":"{{ messages[0].content }}"}`,
		"tokenizer.json":         tokenizer,
		"model.safetensors":      "weights",
		"README.md":              "# A model",
	}
}
