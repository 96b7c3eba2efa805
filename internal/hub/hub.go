// Package hub turns the reference of a model into the path of its files. A reference is a path, or
// the id of a model on the Hugging Face hub, such as Qwen/Qwen3-8B or Qwen/Qwen3-8B@v1.0.
//
// The files of an id come from the local cache of huggingface_hub. What the cache lacks is downloaded
// from the hub into the cache, in a layout that huggingface_hub can use afterwards: the
// configuration, the tokenizer and the chat template, and never the weights. All files of a model are
// of one commit. A download resumes an earlier one that broke off, and a file is used only if it has
// the checksum that the hub has announced.
//
// The hub, its mirrors and their CDNs are peers that are not trusted: each answer is bounded, names of
// files are a fixed list, and the token goes to the hub's own address only.
package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/whence-dev/whence/internal/gguf"
)

// Options configure Resolve. The zero value looks into the environment of the process, downloads, and
// reports nothing.
type Options struct {
	NoDownload bool                // use what the cache has, and never the network
	Progress   io.Writer           // a terminal on which downloads are drawn; nil to log them only
	Log        *slog.Logger        // nil for none
	Env        func(string) string // nil means os.Getenv
	Transport  http.RoundTripper   // nil means connections with timeouts, over the proxies of the environment
}

// Resolve returns the path of the model that reference names. An existing path, and what cannot be an
// id, is returned as it is, also if it is empty. ctx bounds downloads.
func Resolve(ctx context.Context, reference string, o Options) (path string, err error) {
	r, ok := parse(reference)
	if !ok || exists(reference) {
		return reference, nil
	}
	path, err = ResolveID(ctx, reference, o)
	if errors.Is(err, errUnknown) {
		err = fmt.Errorf("%w; nor is there a directory or a file of the name %q here", err, reference)
	}
	if err != nil {
		return "", fmt.Errorf("model %s: %w", r.id, err)
	}
	return path, nil
}

// ResolveID is Resolve for an id that a server names: it never takes the id for a path.
func ResolveID(ctx context.Context, id string, o Options) (path string, err error) {
	r, ok := parse(id)
	if !ok {
		return "", fmt.Errorf("%.128q is not the id of a model on the Hugging Face hub, such as Qwen/Qwen3-8B", id)
	}
	if o.Env == nil {
		o.Env = os.Getenv
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := cacheDirectory(o.Env)
	if err != nil {
		return "", err
	}
	f := &finder{repo: repo{root: filepath.Join(dir, folderName(r.id))}, reference: r, opts: o}
	return f.find(ctx)
}

// A reference is the id of a model on the hub, with a branch, tag or commit.
type reference struct{ id, revision string }

const defaultRevision = "main"

var (
	idForm       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$`)
	revisionForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*$`)
	commitForm   = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

const maxRevision = 200 // bytes

// parse reads an id with or without a revision. The hub allows neither two dashes nor two dots in a
// row, and no dash or dot at the end of a name.
func parse(s string) (r reference, ok bool) {
	id, revision, given := strings.Cut(s, "@")
	if !given {
		revision = defaultRevision
	}
	owner, name, _ := strings.Cut(id, "/")
	ok = idForm.MatchString(id) && !strings.Contains(id, "--") && !strings.Contains(id, "..") &&
		strings.TrimRight(owner, ".-") == owner && strings.TrimRight(name, ".-") == name &&
		len(revision) <= maxRevision && revisionForm.MatchString(revision) && !strings.Contains(revision, "..") &&
		!strings.EqualFold(filepath.Ext(name), ".gguf")
	return reference{id, revision}, ok
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// IsID reports whether Resolve takes reference for the id of a model on the hub.
func IsID(reference string) bool {
	_, ok := parse(reference)
	return ok && !exists(reference)
}

// ID returns the model's id on the hub, without a revision. The argument is such an id, or the path of
// a snapshot in the cache of huggingface_hub; for other paths ID returns "".
func ID(reference string) string {
	if r, ok := parse(reference); ok && !exists(reference) {
		return r.id
	}
	snapshots := filepath.Dir(filepath.Clean(reference))
	folder := filepath.Base(filepath.Dir(snapshots))
	if id, ok := strings.CutPrefix(folder, folderPrefix); ok && filepath.Base(snapshots) == snapshotsFolder {
		return strings.ReplaceAll(id, "--", "/")
	}
	return ""
}

// Name returns the default name of the model at a reference or path: the last part of its id, or the
// name of its directory, or of its GGUF file without the extension.
func Name(reference string) string {
	if id := ID(reference); id != "" {
		return lastPart(id)
	}
	return gguf.Name(reference)
}

// Aliases returns the other names of the model at a reference or path, under which requests may ask for it: its
// id, and the last part of name. An empty name stands for Name(reference).
func Aliases(name, reference string) (all []string) {
	name = cmp.Or(name, Name(reference))
	for _, other := range []string{ID(reference), lastPart(name)} {
		if other != "" && other != name {
			all = append(all, other)
		}
	}
	return all
}

// Alike reports whether two names may mean the same model: they are equal, or one is the last part of the other.
func Alike(a, b string) bool {
	return a == b || a == lastPart(b) || b == lastPart(a)
}

func lastPart(id string) string { return id[strings.LastIndex(id, "/")+1:] }

// A finder looks for the files of one model.
type finder struct {
	repo
	reference
	opts Options
}

// find returns the directory of the snapshot, and downloads what it lacks.
func (f *finder) find(ctx context.Context) (string, error) {
	commit := f.commit(f.revision)
	usable := commit != "" && f.usable(commit)
	if usable && len(f.missing(commit)) == 0 {
		return f.snapshot(commit), nil
	}
	if why := f.mayDownload(); why != "" {
		if usable {
			return f.snapshot(commit), nil
		}
		return "", fmt.Errorf("its configuration and tokenizer are not in %s, and %s; download them with: hf download %s%s --exclude '*.safetensors'",
			filepath.Dir(f.root), why, f.id, f.revisionFlag())
	}
	path, err := f.download(ctx, commit)
	if err != nil && usable && ctx.Err() == nil { // such as a configuration that the model may not even have
		f.opts.Log.Warn("some files of the model may be missing, because the hub cannot be asked", "model", f.id, "files", strings.Join(f.missing(commit), ", "), "err", err)
		return f.snapshot(commit), nil
	}
	return path, err
}

// mayDownload returns what forbids downloads, or "".
func (f *finder) mayDownload() string {
	switch {
	case f.opts.NoDownload:
		return "--no-download forbids to fetch them"
	case isTrue(f.opts.Env("HF_HUB_OFFLINE")) || isTrue(f.opts.Env("TRANSFORMERS_OFFLINE")):
		return "HF_HUB_OFFLINE is set"
	}
	return ""
}

func (f *finder) revisionFlag() string {
	if f.revision == defaultRevision {
		return ""
	}
	return " --revision " + f.revision
}

// download fetches the missing files. known is the commit that the cache has for the revision, or "".
func (f *finder) download(ctx context.Context, known string) (string, error) {
	c, err := newClient(f.opts)
	if err != nil {
		return "", err
	}
	list, err := c.list(ctx, f.id, cmp.Or(known, f.revision))
	if known != "" && errors.Is(err, errNoRevision) { // the hub has dropped the commit
		list, err = c.list(ctx, f.id, f.revision)
	}
	if err != nil {
		return "", err
	}
	names, absent, err := choose(list.files())
	if err != nil {
		return "", err
	}
	var fetch []*file
	for _, name := range names {
		if !f.has(list.Commit, name) {
			fetch = append(fetch, &file{name: name})
		}
	}
	if err := c.fetch(ctx, f, list.Commit, fetch); err != nil {
		return "", err
	}
	f.noteAbsent(list.Commit, absent)
	if err := f.setCommit(f.revision, list.Commit); err != nil {
		return "", err
	}
	return f.snapshot(list.Commit), nil
}
