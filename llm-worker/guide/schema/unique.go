package schema

import (
	"strconv"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// unique matches an array of least to most distinct items. The grammar has a rule for each set of
// items that may already be written, so the items must be a few values.
func (c *Compiler) unique(s schema, least, most int) (*grammar.Symbol, error) {
	const (
		keyword = "uniqueItems"
		maxSize = 64 // of a set
	)
	if _, ok := s.is["prefixItems"]; ok {
		return nil, s.wrong(keyword, "it stands beside prefixItems, which is not supported")
	}
	values, err := c.few(s.below(s.is["items"], "items"))
	switch {
	case err != nil:
		return nil, err
	case values == nil:
		return nil, s.wrong(keyword, "its items must be a few values: an enum, a const, booleans or null")
	case len(values) > maxSize:
		return nil, s.wrong(keyword, "there are %d different items; there can be %d", len(values), maxSize)
	case least > len(values):
		return nil, s.wrong("minItems", "there are only %d different items", len(values))
	case most < 0:
		most = len(values)
	}
	rests := map[uint64]*grammar.Symbol{} // by the set of the items before
	var rest func(before uint64, n int) (*grammar.Symbol, error)
	rest = func(before uint64, n int) (*grammar.Symbol, error) {
		if known := rests[before]; known != nil {
			return known, nil
		}
		one := grammar.Choice()
		rests[before] = one
		if n >= least {
			one.Or(grammar.Literal("]"))
		}
		for i, text := range values {
			if n == most || before&(1<<i) != 0 {
				continue
			}
			if err := c.take(s.node, 1); err != nil {
				return nil, s.wrong(keyword, "there are too many sets of its items")
			}
			further, err := rest(before|1<<i, n+1)
			if err != nil {
				return nil, err
			}
			item := grammar.Sequence(grammar.Literal(text), further)
			if n > 0 {
				item = grammar.Sequence(comma, item)
			}
			one.Or(item)
		}
		return one, nil
	}
	all, err := rest(0, 0)
	return grammar.Sequence(grammar.Literal("["), all), err
}

// few returns all values that are valid under a schema, as JSON and no two of them equal, or nil if
// they cannot be listed.
func (c *Compiler) few(n node) ([]string, error) {
	if n.raw == nil || n.depth > maxDepth {
		return nil, nil
	}
	if err := c.take(n, 1); err != nil {
		return nil, err
	}
	s, err := parse(n)
	if err != nil {
		return nil, err
	}
	if s.none {
		return nil, s.wrong("not", "it stands beside uniqueItems, which is not supported")
	}
	var all []string
	switch {
	case s.is["$ref"] != nil && len(s.is) == 1:
		pointer, target, err := c.resolve(n, s.is["$ref"])
		if err != nil {
			return nil, err
		}
		return c.few(node{target, &place{root: pointer}, n.depth + 1})
	case s.is["anyOf"] != nil && len(s.is) == 1:
		list, err := s.list("anyOf")
		if err != nil {
			return nil, err
		}
		for i, raw := range list {
			some, err := c.few(s.below(raw, "anyOf", strconv.Itoa(i)))
			if some == nil || err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	case s.is["const"] != nil:
		all, err = c.constants(s, "const")
	case s.is["enum"] != nil:
		all, err = c.constants(s, "enum")
	default:
		all, err = ofTypes(s)
	}
	return distinct(all), err
}

// ofTypes returns the values of a schema's types, or nil if they cannot be listed.
func ofTypes(s schema) (all []string, err error) {
	types, err := typesOf(s)
	for _, name := range types {
		switch name {
		case "boolean":
			all = append(all, "false", "true")
		case "null":
			all = append(all, "null")
		default:
			return nil, nil
		}
	}
	return all, err
}
