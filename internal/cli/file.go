package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gopkg.in/yaml.v3"
)

// maxFile bounds the configuration file, in bytes.
const maxFile = 1 << 20

// An entry is one key of a configuration file.
type entry struct {
	key    string
	values []string // several for a list
	line   int
}

// loadFile sets flags from a YAML file. The errors name file and line.
func (s *settings) loadFile(path string) (wrong []error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return []error{fmt.Errorf("--config: %w", err)}
	}
	entries, err := readFile(full)
	if err != nil {
		return []error{err}
	}
	lines := map[string]int{}
	for _, e := range entries {
		where := fmt.Sprintf("%s:%d", full, e.line)
		if before, twice := lines[e.key]; twice {
			wrong = append(wrong, fmt.Errorf("%s: %.64s is set twice, first in line %d", where, e.key, before))
			continue
		}
		lines[e.key] = e.line
		if err := s.setFrom(where, e); err != nil {
			wrong = append(wrong, err)
		}
	}
	return wrong
}

// readFile reads the keys of a file. The file is one mapping from flag names to values or to lists of
// values.
func readFile(path string) (entries []entry, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("--config: %s is larger than %d bytes", path, maxFile)
	}
	in := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := in.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil // an empty file
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := in.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is more than one document; the file must have one", path)
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: the file must be a list of lines such as listen: 127.0.0.1:8080", path, root.Line)
	}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		values, ok := scalars(value)
		if !ok {
			return nil, fmt.Errorf("%s:%d: %.64s must be a value or a list of values", path, value.Line, key.Value)
		}
		entries = append(entries, entry{key.Value, values, key.Line})
	}
	return entries, nil
}

// scalars returns a value, or the values of a list. A null is the empty value.
func scalars(n *yaml.Node) (values []string, ok bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return []string{""}, true
		}
		return []string{n.Value}, true
	case yaml.SequenceNode:
		for _, item := range n.Content {
			value, ok := scalars(item)
			if !ok || item.Kind == yaml.SequenceNode {
				return nil, false
			}
			values = append(values, value...)
		}
		return values, true
	default:
		return nil, false
	}
}
