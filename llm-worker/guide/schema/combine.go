package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strconv"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// combiners are the keywords that combine schemas, or stand for one.
var combiners = []string{"$ref", "allOf", "anyOf", "oneOf"}

// combines reports whether several schemas must hold under s: a combiner with other keywords beside
// it, or allOf with several schemas.
func (s schema) combines() bool {
	n := 0
	for _, name := range combiners {
		if _, ok := s.is[name]; ok {
			n++
		}
	}
	if n == 0 {
		return false
	}
	var list []json.RawMessage
	return len(s.is) > 1 || json.Unmarshal(s.is["allOf"], &list) == nil && len(list) > 1
}

// A gathering has all schemas that must hold under a schema.
type gathering struct {
	objects []schemaObject
	unions  []union
	none    bool // no value is valid
}

// A union is an anyOf or a oneOf.
type union struct {
	schema
	name string
}

// combine compiles a schema under which several schemas must hold: it merges them into one. The
// branches of a union are merged with the rest one by one.
func (c *Compiler) combine(s schema) (*grammar.Symbol, error) {
	var g gathering
	if err := c.gather(s, &g); err != nil {
		return nil, err
	}
	if g.none {
		return grammar.Choice(), nil
	}
	merged, err := g.merged(s.node)
	if err != nil {
		return nil, err
	}
	rest := merged.Raw()
	if len(g.unions) == 0 {
		return c.compile(schema{node: s.node, is: merged})
	}
	for _, other := range g.unions[1:] { // each branch of the first is merged with them in turn
		rest = intersect(rest, schemaObject{other.name: other.is[other.name]}.Raw())
	}
	if err := c.take(s.node, len(rest)/mergedBytes); err != nil {
		return nil, err
	}
	return c.branches(g.unions[0], rest)
}

// merged returns the schema that is equal to all objects, at the place n.
func (g *gathering) merged(n node) (schemaObject, error) {
	merged, err := intersectObjects(g.objects)
	if conflict, ok := errors.AsType[*mergeConflict](err); ok {
		return nil, n.wrong(conflict.Keyword, "%s", conflict.Problem)
	} else if err != nil {
		return nil, n.wrong("", "%v", err)
	}
	return merged, nil
}

// gather adds the schemas that must hold under s.
func (c *Compiler) gather(s schema, g *gathering) error {
	own := schemaObject(maps.Clone(s.is))
	if raw, ok := s.is["$ref"]; ok {
		pointer, target, err := c.resolve(s.node, raw)
		if err != nil {
			return err
		}
		if err := c.gatherFrom(node{target, &place{root: pointer}, s.depth + 1}, g); err != nil {
			return err
		}
	}
	if _, ok := s.is["allOf"]; ok {
		list, err := s.list("allOf")
		if err != nil {
			return err
		}
		for i, raw := range list {
			if err := c.gatherFrom(s.below(raw, "allOf", strconv.Itoa(i)), g); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"anyOf", "oneOf"} {
		if _, ok := s.is[name]; ok {
			g.unions = append(g.unions, union{s, name})
		}
	}
	for _, name := range combiners {
		delete(own, name)
	}
	if len(own) > 0 {
		g.objects = append(g.objects, own)
	}
	return nil
}

func (c *Compiler) gatherFrom(n node, g *gathering) error {
	if n.depth > maxDepth {
		return n.wrong("", "the schema is nested too deeply")
	}
	if err := c.take(n, 1+len(n.raw)/mergedBytes); err != nil {
		return err
	}
	switch string(bytes.TrimSpace(n.raw)) {
	case "true":
		return nil
	case "false":
		g.none = true
		return nil
	}
	s, err := parse(n)
	if err != nil {
		return err
	}
	g.none = g.none || s.none
	return c.gather(s, g)
}

// branches matches the values that are valid under rest and under a branch of a union. The only schema
// of an allOf counts as its branch.
func (c *Compiler) branches(u union, rest json.RawMessage) (*grammar.Symbol, error) {
	list, err := u.list(u.name)
	if err != nil {
		return nil, err
	}
	if u.name == "oneOf" {
		if list, err = c.disjoint(u.schema, list); err != nil {
			return nil, err
		}
	}
	one := grammar.Choice()
	for i, raw := range list {
		part, err := c.schema(u.below(intersect(rest, raw), u.name, strconv.Itoa(i)))
		if err != nil {
			return nil, err
		}
		one.Or(part)
	}
	return one, nil
}
