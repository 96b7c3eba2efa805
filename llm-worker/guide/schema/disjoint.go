package schema

import (
	"encoding/json"
	"errors"

	"github.com/whence-dev/whence/llm-worker/guide/schema/document"
)

// A variant over-approximates the values that are valid under a branch of oneOf.
type variant struct {
	types  kinds
	values map[string]bool            // all values, as JSON; nil if they are not listed
	tags   map[string]map[string]bool // the values of required properties that have constants
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

// checkDisjoint refuses a oneOf under which a value could be valid twice.
func (c *Compiler) checkDisjoint(s schema, list []json.RawMessage) error {
	var before []variant
	var of []int // the branch of each variant
	for i, raw := range list {
		found, err := c.variants(s.below(raw, "oneOf"), len(before))
		if errors.Is(err, errVariants) {
			return s.wrong("oneOf", "%v", err)
		}
		if err != nil {
			return err
		}
		for _, b := range found {
			for at, other := range before[:len(of)] {
				if of[at] != i && !disjoint(&b, &other) {
					return s.wrong("oneOf", "a value may be valid under branches %d and %d; use anyOf, or give the branches different types, or a required property with different constants", of[at], i)
				}
			}
		}
		for _, b := range found {
			before, of = append(before, b), append(of, i)
		}
	}
	return nil
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
	return false
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
	properties, _, err := s.properties()
	if err != nil {
		return b, err
	}
	b.tags = map[string]map[string]bool{}
	for _, p := range properties {
		if !p.required {
			continue
		}
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
			if document.Is(v, name) {
				types |= kind
			}
		}
	}
	return values, types
}
