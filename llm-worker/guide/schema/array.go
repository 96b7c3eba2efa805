package schema

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

var (
	comma = grammar.Measure(grammar.Sequence(grammar.Literal(","), grammar.Optional(grammar.Literal(" "))))
	colon = grammar.Measure(grammar.Sequence(grammar.Literal(":"), grammar.Optional(grammar.Literal(" "))))
)

func (c *Compiler) array(s schema) (*grammar.Symbol, error) {
	least, most, err := bounds(s, "minItems", "maxItems")
	if err != nil {
		return nil, err
	}
	if _, unique := s.is["uniqueItems"]; unique && (most < 0 || most > 1) {
		return c.unique(s, least, most)
	}
	item := anyValue
	if raw, ok := s.is["items"]; ok {
		if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
			return nil, s.wrong("items", "a list of schemas is not supported; prefixItems is")
		}
		if item, err = c.schema(s.below(raw, "items")); err != nil {
			return nil, err
		}
	}
	if _, ok := s.is["prefixItems"]; !ok {
		return list("[", item, least, most, "]"), nil
	}
	first, err := s.list("prefixItems")
	if err != nil {
		return nil, err
	}
	return c.tuple(s, first, item, least, most)
}

// tuple matches an array whose first items have schemas of their own.
func (c *Compiler) tuple(s schema, first []json.RawMessage, item *grammar.Symbol, least, most int) (*grammar.Symbol, error) {
	n := len(first)
	end := grammar.Literal("]")
	rest := end // what follows the first n items, if n > 0
	if most < 0 || most > n {
		rest = grammar.Sequence(grammar.Repeat(max(least-n, 0), max(most-n, -1), grammar.Sequence(comma, item)), end)
	}
	for i, raw := range slices.Backward(first) {
		value, err := c.schema(s.below(raw, "prefixItems", strconv.Itoa(i)))
		if err != nil {
			return nil, err
		}
		if most >= 0 && i >= most {
			continue
		}
		if rest = grammar.Sequence(value, rest); i > 0 {
			rest = grammar.Sequence(comma, rest)
		}
		if i >= least {
			rest = grammar.Choice(rest, end)
		}
	}
	return grammar.Sequence(grammar.Literal("["), rest), nil
}

// list matches least to most items, with commas between them.
func list(open string, item *grammar.Symbol, least, most int, shut string) *grammar.Symbol {
	some := grammar.Sequence(item, grammar.Repeat(max(least-1, 0), max(most-1, -1), grammar.Sequence(comma, item)))
	switch {
	case most == 0:
		some = grammar.Sequence()
	case least == 0:
		some = grammar.Optional(some)
	}
	return grammar.Sequence(grammar.Literal(open), some, grammar.Literal(shut))
}

// bounds returns the bounds of a length; most is negative if there is no upper bound.
func bounds(s schema, low, high string) (least, most int, err error) {
	most = -1
	for name, into := range map[string]*int{low: &least, high: &most} {
		if raw, ok := s.is[name]; ok {
			var v float64
			if json.Unmarshal(raw, &v) != nil || v < 0 || v != math.Trunc(v) || v > math.MaxInt32 {
				return 0, 0, s.wrong(name, "it must be a count")
			}
			*into = int(v)
		}
	}
	if most >= 0 && least > most {
		return 0, 0, s.wrong(low, "it is more than %s", high)
	}
	return least, most, nil
}
