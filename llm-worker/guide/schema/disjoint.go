package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
)

// A variant over-approximates the values that are valid under a branch of oneOf.
type variant struct {
	types  kinds
	values map[string]bool            // all values, as JSON; nil if they are not listed
	tags   map[string]map[string]bool // the values of required properties that have constants

	required []string        // the required properties
	absent   map[string]bool // the properties that no value has
}

// kinds is a set of types. Numbers and integers are one.
type kinds uint8

const (
	nullKind kinds = 1 << iota
	booleanKind
	numberKind
	stringKind
	arrayKind
	objectKind

	allKinds = objectKind<<1 - 1
)

var kindOf = map[string]kinds{
	"null": nullKind, "boolean": booleanKind, "number": numberKind, "integer": numberKind, "string": stringKind, "array": arrayKind, "object": objectKind,
}

// maxVariants bounds the variants of one oneOf, whose pairs are compared.
const maxVariants = 256

var errVariants = errors.New("it has too many branches to be compared")

// disjoint returns the branches of a oneOf without the values that are valid under two of them. Two
// branches that require different properties exclude each other's. It refuses other branches under
// which a value could be valid twice.
func (c *Compiler) disjoint(s schema, list []json.RawMessage) ([]json.RawMessage, error) {
	var before []variant
	var of []int // the branch of each variant
	excluded := make([][]string, len(list))
	for i, raw := range list {
		found, err := c.variants(s.below(raw, "oneOf"), len(before))
		if errors.Is(err, errVariants) {
			return nil, s.wrong("oneOf", "%v", err)
		}
		if err != nil {
			return nil, err
		}
		for _, b := range found {
			for at, other := range before[:len(of)] {
				if of[at] == i || disjoint(&b, &other) {
					continue
				}
				mine, theirs, ok := apart(&b, &other)
				if !ok {
					return nil, s.wrong("oneOf", "a value may be valid under branches %d and %d; use anyOf, or give the branches different types, or a required property with different constants", of[at], i)
				}
				excluded[i], excluded[of[at]] = append(excluded[i], theirs), append(excluded[of[at]], mine)
			}
		}
		for _, b := range found {
			before, of = append(before, b), append(of, i)
		}
	}
	exclusive := slices.Clone(list)
	for i, names := range excluded {
		if len(names) > 0 {
			exclusive[i] = intersect(list[i], schemaObject{
				"type": json.RawMessage(`"object"`), "properties": propertiesOf(names, json.RawMessage("false")),
			}.Raw())
		}
	}
	return exclusive, nil
}

// apart returns a property that only one of two variants requires, and one that only the other does.
// An object with one of them and without the other is valid under one of the two.
func apart(a, b *variant) (mine, theirs string, ok bool) {
	only := func(a, b *variant) string {
		for _, name := range a.required {
			if !slices.Contains(b.required, name) {
				return name
			}
		}
		return ""
	}
	mine, theirs = only(a, b), only(b, a)
	return mine, theirs, mine != "" && theirs != ""
}

func disjoint(a, b *variant) bool {
	common := a.types & b.types
	switch {
	case common == 0:
		return true
	case a.values != nil && b.values != nil:
		return !meet(a.values, b.values)
	case common != objectKind:
		return false
	}
	for name, values := range a.tags {
		if others := b.tags[name]; others != nil && !meet(values, others) {
			return true
		}
	}
	lacks := func(name string) bool { return a.absent[name] || b.absent[name] }
	return slices.ContainsFunc(a.required, lacks) || slices.ContainsFunc(b.required, lacks)
}

func meet(a, b map[string]bool) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	for v := range a {
		if b[v] {
			return true
		}
	}
	return false
}

// variants returns the variants of a schema: several for anyOf and oneOf. made is the number of those
// that exist already.
func (c *Compiler) variants(n node, made int) ([]variant, error) {
	if n.depth > maxDepth {
		return nil, n.wrong("", "the schema is nested too deeply")
	}
	if made >= maxVariants {
		return nil, errVariants
	}
	if err := c.take(n, 1); err != nil {
		return nil, err
	}
	s, err := parse(n)
	if err != nil { // true, false, or an error that the compilation names
		return []variant{{types: allKinds}}, nil //nolint:nilerr // see above
	}
	if ref, ok := s.is["$ref"]; ok {
		pointer, target, err := c.resolve(n, ref)
		if err != nil {
			return nil, err
		}
		return c.variants(node{target, &place{root: pointer}, n.depth + 1}, made)
	}
	for _, name := range []string{"anyOf", "oneOf", "allOf"} {
		if _, ok := s.is[name]; !ok {
			continue
		}
		list, err := s.list(name)
		if err != nil {
			return nil, err
		}
		var found []variant
		for _, raw := range list {
			some, err := c.variants(s.below(raw, name), made+len(found))
			if err != nil {
				return nil, err
			}
			found = append(found, some...)
		}
		return found, nil
	}
	b, err := c.variant(s)
	return []variant{b}, err
}

// variant returns the only variant of a schema without anyOf and oneOf.
func (c *Compiler) variant(s schema) (variant, error) {
	b := variant{types: allKinds}
	types, err := typesOf(s)
	if err != nil {
		return b, err
	}
	if len(types) > 0 {
		b.types = 0
		for _, name := range types {
			b.types |= kindOf[name]
		}
	}
	var listed kinds
	if b.values, listed = listedValues(s); b.values != nil {
		b.types &= listed
		return b, nil
	}
	patterns, err := c.namePatterns(s)
	if err != nil {
		return b, err
	}
	properties, err := s.properties(patterns)
	if err != nil {
		return b, err
	}
	b.tags, b.absent = map[string]map[string]bool{}, map[string]bool{}
	for _, p := range properties {
		if string(bytes.TrimSpace(p.Value)) == "false" {
			b.absent[p.Key] = true
		}
		if !p.required {
			continue
		}
		b.required = append(b.required, p.Key)
		if values, err := c.tag(s.below(p.Value, p.where)); err != nil {
			return b, err
		} else if values != nil {
			b.tags[p.Key] = values
		}
	}
	return b, nil
}

// tag returns the constants of a property, or nil if it has others, too.
func (c *Compiler) tag(n node) (map[string]bool, error) {
	if err := c.take(n, 1); err != nil {
		return nil, err
	}
	s, err := parse(n)
	if err != nil {
		return nil, nil //nolint:nilerr // true, false, or an error that the compilation names
	}
	if ref, ok := s.is["$ref"]; ok && n.depth < maxDepth {
		pointer, target, err := c.resolve(n, ref)
		if err != nil {
			return nil, err
		}
		return c.tag(node{target, &place{root: pointer}, n.depth + 1})
	}
	values, _ := listedValues(s)
	return values, nil
}

// listedValues returns the values of const or enum, and their types, or nil. Numbers that are equal
// are the same.
func listedValues(s schema) (values map[string]bool, types kinds) {
	var list []any
	if raw, ok := s.is["enum"]; ok {
		if json.Unmarshal(raw, &list) != nil {
			return nil, 0
		}
	} else if raw, ok := s.is["const"]; ok {
		list = []any{nil}
		if json.Unmarshal(raw, &list[0]) != nil {
			return nil, 0
		}
	} else {
		return nil, 0
	}
	values = map[string]bool{}
	for _, v := range list {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, 0
		}
		values[string(text)] = true
		for name, kind := range kindOf {
			if isOfType(v, name) {
				types |= kind
			}
		}
	}
	return values, types
}
