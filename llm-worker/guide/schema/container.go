package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

var (
	comma = grammar.Measure(grammar.Sequence(grammar.Literal(","), grammar.Optional(grammar.Literal(" "))))
	colon = grammar.Measure(grammar.Sequence(grammar.Literal(":"), grammar.Optional(grammar.Literal(" "))))
)

// object matches an object with the properties that the schema names, in the schema's order;
// properties that are not required may be absent. If the schema names none, the object may have any
// properties.
func (c *Compiler) object(s schema, depth int) (*grammar.Symbol, error) {
	var required []string
	if raw, ok := s["required"]; ok && json.Unmarshal(raw, &required) != nil {
		return nil, errors.New("required must be a list of strings")
	}
	var properties []member
	if raw, ok := s["properties"]; ok {
		var err error
		if properties, err = members(raw); err != nil {
			return nil, fmt.Errorf("properties must be an object: %w", err)
		}
	}
	others, none := json.RawMessage("true"), false
	if raw, ok := s["additionalProperties"]; ok {
		others, none = raw, string(raw) == "false"
	}
	for _, name := range required {
		if !slices.ContainsFunc(properties, func(m member) bool { return m.key == name }) {
			if none {
				return nil, fmt.Errorf("it requires the property %.64q, which it does not allow", name)
			}
			properties = append(properties, member{name, others})
		}
	}
	if len(properties) > 0 || none {
		return c.named(properties, required, depth)
	}
	value, err := c.schema(others, depth+1)
	if err != nil {
		return nil, err
	}
	return list("{", grammar.Sequence(text, colon, value), 0, -1, "}"), nil
}

// named matches an object with these properties. What may follow depends on the index of the next
// property, and on whether a property has come before.
func (c *Compiler) named(properties []member, required []string, depth int) (*grammar.Symbol, error) {
	first, later := grammar.Literal("}"), grammar.Literal("}")
	for _, m := range slices.Backward(properties) {
		value, err := c.schema(m.value, depth+1)
		if err != nil {
			return nil, fmt.Errorf("property %.64q: %w", m.key, err)
		}
		key, err := plainJSON(m.key)
		if err != nil {
			return nil, err
		}
		one := grammar.Sequence(grammar.Literal(key), colon, value, later)
		asFirst, asLater := one, grammar.Sequence(comma, one)
		if !slices.Contains(required, m.key) {
			asFirst, asLater = grammar.Choice(one, first), grammar.Choice(asLater, later)
		}
		first, later = asFirst, asLater
	}
	return grammar.Sequence(grammar.Literal("{"), first), nil
}

func (c *Compiler) array(s schema, depth int) (*grammar.Symbol, error) {
	item := anyValue
	if raw, ok := s["items"]; ok {
		var err error
		if item, err = c.schema(raw, depth+1); err != nil {
			return nil, err
		}
	}
	least, most, err := bounds(s, "minItems", "maxItems")
	if err != nil {
		return nil, err
	}
	return list("[", item, least, most, "]"), nil
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
		if raw, ok := s[name]; ok {
			var v float64
			if json.Unmarshal(raw, &v) != nil || v < 0 || v != math.Trunc(v) || v > math.MaxInt32 {
				return 0, 0, fmt.Errorf("%s must be a count", name)
			}
			*into = int(v)
		}
	}
	if most >= 0 && least > most {
		return 0, 0, fmt.Errorf("%s is more than %s", low, high)
	}
	return least, most, nil
}

// A member is one member of a JSON object.
type member struct {
	key   string
	value json.RawMessage
}

// members returns the members of an object, in its order.
func members(raw json.RawMessage) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.Join(errors.New("it is no object"), err)
	}
	var all []member
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{}
		m.key, _ = key.(string)
		if seen[m.key] {
			return nil, fmt.Errorf("the member %.64q occurs twice", m.key)
		}
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		seen[m.key] = true
		all = append(all, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("there is more text after it")
	}
	return all, nil
}

// canonical returns a value in the form in which it is generated: without white space, and with no
// more escapes than necessary.
func canonical(raw json.RawMessage) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", err
	}
	return plainJSON(v)
}

// plainJSON returns v as JSON with the necessary escapes only: encoding/json also escapes &, <, >
// and two line separators, which models write literally.
func plainJSON(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	// A backslash of the text is doubled here, so each pair is skipped as a whole.
	return strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(b.String(), "\n")), nil
}
