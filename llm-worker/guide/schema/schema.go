// Package schema compiles JSON Schemas into grammars of the values that are valid under them.
//
// Keywords lists what is supported. Another keyword that is known to make values invalid is refused
// with an *Error, which names the keyword and its place; all others are annotations.
package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
	"github.com/whence-dev/whence/llm-worker/guide/pattern"
)

// A Compiler compiles the schemas of one guide, and bounds the size of all of them together.
type Compiler struct {
	left     int            // how many of maxParts are left
	patterns pattern.Budget // of the patterns

	root json.RawMessage
	refs map[string]*grammar.Symbol // by JSON pointer into root
	// Members of the objects and arrays that references pass through, by JSON pointer.
	members map[string]map[string]json.RawMessage
}

// maxParts bounds the size of a guide: its schemas, their values, its numbers with bounds, which
// have many symbols each, and the states of its patterns.
const (
	maxParts      = 1 << 14
	numberParts   = 1 << 6
	patternStates = 1 << 4 // for each part
	mergedBytes   = 1 << 6 // of a merged schema, for each part
)

// NewCompiler returns a compiler of schemas that have at most maxParts parts together.
func NewCompiler() *Compiler { return &Compiler{left: maxParts, patterns: pattern.NewBudget()} }

// An Error is a part of a schema that cannot be enforced.
type Error struct {
	At      string // a JSON pointer: the place of the schema
	Keyword string // "" if the schema as a whole cannot be enforced
	Problem string
}

func (e *Error) Error() string {
	const longest = 200
	at := e.At
	if len(at) > longest {
		at = "…" + strings.ToValidUTF8(at[len(at)-longest:], "")
	}
	if e.Keyword == "" {
		return fmt.Sprintf("at %s: %s", at, e.Problem)
	}
	return fmt.Sprintf("at %s: %.64s: %s", at, e.Keyword, e.Problem)
}

// A node is a schema object or boolean, and its place.
type node struct {
	raw   json.RawMessage
	at    *place
	depth int
}

// A place is a JSON pointer, which is written only for an error: root, or the place above and the
// names that lead from there.
type place struct {
	root  string
	above *place
	names []string
}

func (p *place) String() string {
	if p.above == nil {
		return p.root
	}
	var b strings.Builder
	b.WriteString(p.above.String())
	for _, name := range p.names {
		b.WriteByte('/')
		b.WriteString(pointerEscape.Replace(name))
	}
	return b.String()
}

// wrong returns the error of a keyword of n.
func (n node) wrong(keyword, problem string, args ...any) error {
	return &Error{At: n.at.String(), Keyword: keyword, Problem: fmt.Sprintf(problem, args...)}
}

// below returns the schema at a part of n.
func (n node) below(raw json.RawMessage, names ...string) node {
	return node{raw, &place{above: n.at, names: names}, n.depth + 1}
}

var (
	pointerEscape   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescape = strings.NewReplacer("~1", "/", "~0", "~")
)

// take counts parts of the guide.
func (c *Compiler) take(n node, parts int) error {
	if c.left -= parts; c.left < 0 {
		return n.wrong("", "the schemas have too many parts")
	}
	return nil
}

// Compile returns the values that are valid under a schema, which is a JSON document, and the root of
// its own references. The error of a schema that cannot be enforced is an *Error.
func (c *Compiler) Compile(text string) (*grammar.Symbol, error) {
	c.root, c.refs, c.members = json.RawMessage(text), map[string]*grammar.Symbol{}, map[string]map[string]json.RawMessage{}
	return c.schema(node{raw: c.root, at: &place{root: "#"}})
}

const maxDepth = 64

// A schema holds the members of a schema object, without annotations.
type schema struct {
	node
	is   map[string]json.RawMessage
	none bool // no value is valid
}

func (c *Compiler) schema(n node) (*grammar.Symbol, error) {
	if n.depth > maxDepth {
		return nil, n.wrong("", "the schema is nested too deeply")
	}
	if err := c.take(n, 1); err != nil {
		return nil, err
	}
	switch string(bytes.TrimSpace(n.raw)) {
	case "true":
		return anyValue, nil
	case "false":
		return grammar.Choice(), nil
	}
	s, err := parse(n)
	if err != nil {
		return nil, err
	}
	if s.none {
		return grammar.Choice(), nil
	}
	return c.compile(s)
}

// parse reads a schema object, and refuses keywords that cannot be enforced.
func parse(n node) (schema, error) {
	s, asserted := schema{node: n, is: map[string]json.RawMessage{}}, map[string]json.RawMessage{}
	all, err := members(n.raw)
	if err != nil {
		return s, n.wrong("", "a schema must be an object: %v", err)
	}
	for _, m := range all {
		switch {
		case assertions[m.Key]:
			asserted[m.Key] = m.Value
		case enforced[m.Key]:
			s.is[m.Key] = m.Value
		}
	}
	if s.none, err = s.rewrite(asserted); err != nil {
		return s, err
	}
	switch unique, ok := s.is["uniqueItems"]; {
	case !ok:
	case string(unique) == "false":
		delete(s.is, "uniqueItems")
	case string(unique) != "true":
		return s, n.wrong("uniqueItems", "it must be true or false")
	}
	return s, nil
}

func (c *Compiler) compile(s schema) (*grammar.Symbol, error) {
	if s.combines() {
		return c.combine(s)
	}
	for _, name := range combiners {
		value, ok := s.is[name]
		switch {
		case !ok:
		case name == "$ref":
			return c.ref(s, value)
		default:
			return c.branches(union{s, name}, schemaObject{}.Raw())
		}
	}
	for _, name := range []string{"const", "enum"} {
		if _, ok := s.is[name]; ok {
			return c.listed(s, name)
		}
	}
	return c.types(s)
}

// listed compiles const or enum.
func (c *Compiler) listed(s schema, name string) (*grammar.Symbol, error) {
	texts, err := c.constants(s, name)
	return grammar.OneText(texts), err
}

// constants returns the values of const or enum that are valid under the keywords beside it.
func (c *Compiler) constants(s schema, name string) ([]string, error) {
	for _, k := range Keywords {
		if _, is := s.is[k.Name]; is && k.Name != name && k.Name != "type" && k.implies != "string" && k.implies != "number" {
			return nil, s.wrong(k.Name, "it stands beside %s, which is not supported", name)
		}
	}
	if name == "const" {
		return c.texts(s, name, []json.RawMessage{s.is[name]})
	}
	list, err := s.list(name)
	if err != nil {
		return nil, err
	}
	return c.texts(s, name, list)
}

// list returns the elements of a keyword's list.
func (s schema) list(name string) (list []json.RawMessage, err error) {
	if json.Unmarshal(s.is[name], &list) != nil || len(list) == 0 {
		return nil, s.wrong(name, "it must be a list that is not empty")
	}
	return list, nil
}

// texts returns the values that have the schema's type, as JSON, sorted.
func (c *Compiler) texts(s schema, name string, list []json.RawMessage) ([]string, error) {
	types, err := typesOf(s)
	if err != nil {
		return nil, err
	}
	if err := c.take(s.node, len(list)); err != nil {
		return nil, err
	}
	valid, err := c.bounded(s)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, raw := range list {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, s.wrong(name, "%v", err)
		}
		if len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return isOfType(v, t) }) {
			continue
		}
		if !valid(v) {
			continue
		}
		text, err := canonical(raw)
		if err != nil {
			return nil, s.wrong(name, "%v", err)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return slices.Compact(texts), nil
}
