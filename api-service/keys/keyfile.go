package keys

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// A Key is a key to be created.
type Key struct {
	Tenant  string
	ID      string    // "" means the first digits of the digest
	Expires time.Time // zero means never
}

// Add creates a key and adds its digest to the text of a file, which may be empty. The file does
// not contain the key itself. The key has the weight of its tenant's other keys, which must be the
// same for all of them.
func Add(text []byte, k Key) (changed []byte, key string, err error) {
	root, list, err := parseNodes(text)
	if err != nil {
		return nil, "", err
	}
	key = "sk-" + strings.ToLower(rand.Text())
	digest := sha256.Sum256([]byte(key))
	entry := &yaml.Node{Kind: yaml.MappingNode}
	set := func(name, value string) {
		entry.Content = append(entry.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, scalar(value))
	}
	if k.ID != "" {
		set("id", k.ID)
	}
	set("sha256", hex.EncodeToString(digest[:]))
	set("tenant", k.Tenant)
	weight, err := weightOf(k.Tenant, list)
	if err != nil {
		return nil, "", err
	}
	if weight > 1 {
		entry.Content = append(entry.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "weight"}, &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatUint(uint64(weight), 10)})
	}
	if !k.Expires.IsZero() {
		entry.Content = append(entry.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "expires"},
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!timestamp", Value: k.Expires.UTC().Format(time.RFC3339)})
	}
	list.Content = append(list.Content, entry)
	changed, err = encodeNodes(root)
	return changed, key, err
}

// weightOf returns the weight of the first key of a tenant, or 0 if the tenant has none.
func weightOf(tenant string, list *yaml.Node) (uint32, error) {
	var entries []Entry
	if err := list.Decode(&entries); err != nil {
		return 0, err
	}
	for _, e := range entries {
		if e.Tenant == tenant {
			return e.Weight, nil
		}
	}
	return 0, nil
}

// Revoke removes the key with an id. A file without keys refuses every caller.
func Revoke(text []byte, id string) (changed []byte, err error) {
	root, list, err := parseNodes(text)
	if err != nil {
		return nil, err
	}
	for i, node := range list.Content {
		var e Entry
		if err := node.Decode(&e); err != nil {
			return nil, err
		}
		if e.Name() != id {
			continue
		}
		list.Content = append(list.Content[:i:i], list.Content[i+1:]...)
		return encodeNodes(root)
	}
	return nil, fmt.Errorf("the file has no key with the id %q", id)
}

// List returns the entries of a file, in order.
func List(text []byte) (entries []Entry, err error) {
	_, list, err := parseNodes(text)
	if err != nil {
		return nil, err
	}
	return entries, list.Decode(&entries)
}

// Change replaces the file at path with the result of change for its text. An invalid result is not
// written. If the file is missing, only its owner can read the new file. Otherwise the new file has
// the owner and the mode of the old one. Changes of the same file wait for each other.
func Change(path string, change func(text []byte) ([]byte, error)) error {
	path, err := resolveLinks(path)
	if err != nil {
		return err
	}
	unlock, err := lock(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	text, info, err := readFile(path)
	if err != nil {
		return err
	}
	changed, err := change(text)
	if err != nil {
		return err
	}
	ring, err := Parse(changed, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	ring.Close()
	return replaceFile(path, text, changed, info)
}

// readFile returns the text of a file and its FileInfo, or nil for both if the file does not exist.
func readFile(path string) (text []byte, info os.FileInfo, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() //nolint:errcheck // the file was only read
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	text, err = io.ReadAll(f)
	return text, info, err
}

// replaceFile writes a file so that readers see either the old text or the new text. old is the
// file that is replaced; nil if there is none.
func replaceFile(path string, was, text []byte, old os.FileInfo) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".keys-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // after the rename there is nothing to remove
	mode := os.FileMode(0o600)
	if old != nil {
		mode, err = old.Mode().Perm(), own(f, old)
	}
	if err == nil {
		_, err = f.Write(text)
	}
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	now, _, err := readFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, was) { // by an editor, for example, which takes no lock
		return fmt.Errorf("%s was changed in the meantime; try again", path)
	}
	return os.Rename(f.Name(), path)
}

// resolveLinks returns the target of a symbolic link.
func resolveLinks(path string) (string, error) {
	at, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return path, nil
	}
	return at, err
}

// parseNodes returns the document of a file, and its list of keys.
func parseNodes(text []byte) (root, list *yaml.Node, err error) {
	root = &yaml.Node{}
	if err := yaml.Unmarshal(text, root); err != nil {
		return nil, nil, err
	}
	if root.Kind == 0 {
		root.Kind, root.Content = yaml.DocumentNode, []*yaml.Node{{Kind: yaml.MappingNode}}
	}
	top := root.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, nil, errors.New("the file is not a key file: its top level must be a mapping")
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		if top.Content[i].Value == "keys" {
			list = top.Content[i+1]
		}
	}
	switch {
	case list == nil:
		list = &yaml.Node{Kind: yaml.SequenceNode}
		top.Content = append(top.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "keys"}, list)
	case list.Kind != yaml.SequenceNode:
		return nil, nil, errors.New("keys must be a list")
	}
	return root, list, nil
}

func scalar(value string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(value)
	n.Tag = "!!str"
	return n
}

func encodeNodes(root *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(root), enc.Close())
	return b.Bytes(), err
}
