package hub

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/whence-dev/whence/internal/modelfile"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// The layout of the cache, which is huggingface_hub's: blobs by their ETag, a snapshot for each commit
// with links to blobs, and the commit of each branch and tag.
const (
	folderPrefix    = "models--"
	blobsFolder     = "blobs"
	snapshotsFolder = "snapshots"
	refsFolder      = "refs"
	absentFolder    = ".no_exist"
)

const configFile = "config.json"

// settings are the files that a model may have besides its tokenizer.
var settings = []string{configFile, "generation_config.json", "tokenizer_config.json", "chat_template.jinja"}

// limit returns the maximum size of a file, in bytes.
func limit(name string) int64 {
	if slices.Contains(settings, name) {
		return modelfile.MaxOther
	}
	return modelfile.MaxTokenizer
}

func folderName(id string) string { return folderPrefix + strings.ReplaceAll(id, "/", "--") }

// isTrue reads a switch of the environment as huggingface_hub does.
func isTrue(value string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(value))
}

// home returns the directory of Hugging Face's libraries.
func home(env func(string) string) (string, error) {
	if dir := env("HF_HOME"); dir != "" {
		return expand(dir, env), nil
	}
	if dir := env("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(expand(dir, env), "huggingface"), nil
	}
	user := userHome(env)
	if user == "" {
		return "", errors.New("the home directory is unknown, so the cache of models is, too: set HF_HOME")
	}
	return filepath.Join(user, ".cache", "huggingface"), nil
}

func userHome(env func(string) string) string { return cmp.Or(env("HOME"), env("USERPROFILE")) }

// expand replaces a leading ~ and variables.
func expand(path string, env func(string) string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
		path = userHome(env) + rest
	}
	return os.Expand(path, env)
}

// cacheDirectory returns the directory of all models.
func cacheDirectory(env func(string) string) (string, error) {
	if dir := cmp.Or(env("HF_HUB_CACHE"), env("HUGGINGFACE_HUB_CACHE")); dir != "" {
		return filepath.Abs(expand(dir, env))
	}
	dir, err := home(env)
	if err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Join(dir, "hub"))
}

// A repo is the directory of one model in the cache.
type repo struct{ root string }

func (r repo) snapshot(commit string) string { return filepath.Join(r.root, snapshotsFolder, commit) }
func (r repo) blob(etag string) string       { return filepath.Join(r.root, blobsFolder, etag) }

// commit returns the commit of a revision, or "" if the cache has none.
func (r repo) commit(revision string) string {
	if commitForm.MatchString(revision) {
		return revision
	}
	text, err := modelfile.Read(os.DirFS(r.root), refsFolder+"/"+revision, 64)
	if commit := strings.TrimSpace(string(text)); err == nil && commitForm.MatchString(commit) {
		return commit
	}
	return ""
}

// has reports whether a snapshot has a file.
func (r repo) has(commit, name string) bool {
	info, err := os.Stat(filepath.Join(r.snapshot(commit), name))
	return err == nil && info.Mode().IsRegular()
}

// lacks reports whether a snapshot may lack a file: it is not there, and the model is not known to
// have none.
func (r repo) lacks(commit, name string) bool {
	return !r.has(commit, name) && !exists(filepath.Join(r.root, absentFolder, commit, name))
}

// usable reports whether a snapshot has the files without which no model is served.
func (r repo) usable(commit string) bool {
	return r.has(commit, configFile) && slices.ContainsFunc(tokenizer.Files(), func(name string) bool { return r.has(commit, name) })
}

// missing returns the files that a snapshot may lack. Of the tokenizers it needs the most important.
func (r repo) missing(commit string) (names []string) {
	for _, name := range settings {
		if r.lacks(commit, name) {
			names = append(names, name)
		}
	}
	for _, name := range tokenizer.Files() {
		if r.has(commit, name) {
			break
		}
		if r.lacks(commit, name) {
			names = append(names, name)
		}
	}
	return names
}

// choose returns which of a model's files are needed, and which it does not have.
func choose(all map[string]bool) (names, absent []string, err error) {
	for _, name := range settings {
		if all[name] {
			names = append(names, name)
		} else {
			absent = append(absent, name)
		}
	}
	found := false
	for _, name := range tokenizer.Files() {
		if found = all[name]; found {
			names = append(names, name)
			break
		}
		absent = append(absent, name)
	}
	switch {
	case all[configFile] && found:
		return names, absent, nil
	case hasGGUF(all):
		return nil, nil, errors.New("it has GGUF files, and not the configuration and the tokenizer of a model: name the model from which they were made, or the path of a GGUF file")
	case all[configFile]:
		return nil, nil, errors.New("it has none of the tokenizers that Whence reads: " + strings.Join(tokenizer.Files(), ", "))
	}
	return nil, nil, errors.New("it has no " + configFile)
}

func hasGGUF(all map[string]bool) bool {
	for name := range all {
		if strings.EqualFold(filepath.Ext(name), ".gguf") {
			return true
		}
	}
	return false
}

// link makes a blob a file of a snapshot.
func (r repo) link(commit, name, etag string) error {
	at := filepath.Join(r.snapshot(commit), name)
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		return err
	}
	return replace(at, func(temporary string) error {
		err := os.Symlink(filepath.Join("..", "..", blobsFolder, etag), temporary)
		if err != nil { // some file systems have no symbolic links
			err = os.Link(r.blob(etag), temporary)
		}
		return err
	})
}

// setCommit notes the commit of a branch or tag.
func (r repo) setCommit(revision, commit string) error {
	if revision == commit || r.commit(revision) == commit {
		return nil
	}
	at := filepath.Join(r.root, refsFolder, filepath.FromSlash(revision))
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		return err
	}
	return replace(at, func(temporary string) error { return os.WriteFile(temporary, []byte(commit), 0o666) })
}

// noteAbsent notes files that a model does not have, so that the hub need not be asked again. A cache
// that cannot be written to loses only that.
func (r repo) noteAbsent(commit string, names []string) {
	dir := filepath.Join(r.root, absentFolder, commit)
	if os.MkdirAll(dir, 0o777) != nil {
		return
	}
	for _, name := range names {
		if f, err := os.Create(filepath.Join(dir, name)); err == nil {
			_ = f.Close() // it is empty
		}
	}
}

// replace makes a file under another name, and then gives it its own name: other processes see the
// whole file or none.
func replace(path string, write func(temporary string) error) error {
	temporary := path + "." + unique() + ".tmp"
	err := write(temporary)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		if e := os.Remove(temporary); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// unique returns a name that no other process has.
func unique() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
