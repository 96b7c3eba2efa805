package schema

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
	"github.com/whence-dev/whence/llm-worker/guide/schema/document"
	"github.com/whence-dev/whence/llm-worker/guide/schema/merge"
)

var (
	comma = grammar.Measure(grammar.Sequence(grammar.Literal(","), grammar.Optional(grammar.Literal(" "))))
	colon = grammar.Measure(grammar.Sequence(grammar.Literal(":"), grammar.Optional(grammar.Literal(" "))))
)

// object matches an object with the properties that the schema names, in the schema's order;
// properties that are not required may be absent. If the schema names none, the object may have any
// properties.
func (c *Compiler) object(s schema) (*grammar.Symbol, error) {
	properties, err := s.properties()
	if err != nil {
		return nil, err
	}
	others := s.others()
	none := string(others) == "false"
	names, named := s.is["propertyNames"]
	if named && len(properties) > 0 {
		return nil, s.wrong("propertyNames", "it stands beside properties or required, which is not supported")
	}
	key, value := text, s.below(others, "additionalProperties")
	switch patterns, ok := s.is["patternProperties"]; {
	case ok:
		key, value, err = c.matching(s, patterns, len(properties) > 0 || named)
	case len(properties) > 0 || none:
		return c.named(s, properties)
	case named:
		key, err = c.names(s.below(names, "propertyNames"))
	}
	if err != nil {
		return nil, err
	}
	one, err := c.schema(value)
	if err != nil {
		return nil, err
	}
	return list("{", grammar.Sequence(key, colon, one), 0, -1, "}"), nil
}

// matching returns the names that match the pattern of patternProperties, and the schema of their
// values. beside reports that other keywords name properties.
func (c *Compiler) matching(s schema, patterns json.RawMessage, beside bool) (names *grammar.Symbol, value node, err error) {
	const keyword = "patternProperties"
	all, err := document.Members(patterns)
	switch {
	case err != nil:
		return nil, value, s.wrong(keyword, "it must be an object: %v", err)
	case len(all) != 1:
		return nil, value, s.wrong(keyword, "it has %d patterns; only one is supported", len(all))
	case beside:
		return nil, value, s.wrong(keyword, "it stands beside properties, required or propertyNames, which is not supported")
	}
	expression, err := json.Marshal(all[0].Key)
	if err != nil {
		return nil, value, s.wrong(keyword, "%v", err)
	}
	name := document.Object([]document.Member{{Key: "pattern", Value: expression}})
	names, err = c.names(s.below(name, keyword))
	return names, s.below(all[0].Value, keyword, all[0].Key), err
}

// others returns the schema of the properties that s does not name.
func (s schema) others() json.RawMessage {
	return merge.Object(s.is).Others()
}

// A property is a property that a schema names.
type property struct {
	document.Member
	where    string // the keyword that has its schema
	required bool
}

// properties returns the properties that s names in properties and required.
func (s schema) properties() (all []property, err error) {
	if raw, ok := s.is["properties"]; ok {
		list, err := document.Members(raw)
		if err != nil {
			return nil, s.wrong("properties", "it must be an object: %v", err)
		}
		for _, m := range list {
			all = append(all, property{Member: m, where: "properties"})
		}
	}
	var required []string
	if raw, ok := s.is["required"]; ok && json.Unmarshal(raw, &required) != nil {
		return nil, s.wrong("required", "it must be a list of strings")
	}
	index := make(map[string]int, len(all))
	for i := range all {
		index[all[i].Key] = i
	}
	others := s.others()
	for _, name := range required {
		at, known := index[name]
		switch {
		case known:
			all[at].required = true
		case string(others) == "false":
			return nil, s.wrong("required", "it has the property %.64q, which additionalProperties does not allow", name)
		default:
			index[name] = len(all)
			all = append(all, property{document.Member{Key: name, Value: others}, "additionalProperties", true})
		}
	}
	return all, nil
}

// names matches the names that are valid under a schema of strings.
func (c *Compiler) names(n node) (*grammar.Symbol, error) {
	if err := c.take(n, 1); err != nil {
		return nil, err
	}
	s, err := parse(n)
	if err != nil {
		return nil, err
	}
	for _, k := range Keywords {
		if _, is := s.is[k.Name]; is && k.implies != "string" && k.Name != "type" && k.Name != "enum" && k.Name != "const" {
			return nil, s.wrong(k.Name, "this keyword is not supported in propertyNames")
		}
	}
	if types, err := typesOf(s); err != nil || len(types) > 0 && !slices.Contains(types, "string") {
		return nil, s.wrong("type", "it must be string in propertyNames")
	}
	s.is["type"] = json.RawMessage(`"string"`)
	return c.compile(s)
}

// named matches an object with these properties. What may follow depends on the index of the next
// property, and on whether a property has come before.
func (c *Compiler) named(s schema, properties []property) (*grammar.Symbol, error) {
	first, later := grammar.Literal("}"), grammar.Literal("}")
	for _, p := range slices.Backward(properties) {
		at := s.below(p.Value, p.where)
		if p.where == "properties" {
			at = s.below(p.Value, p.where, p.Key)
		}
		value, err := c.schema(at)
		if err != nil {
			return nil, err
		}
		key, err := document.Plain(p.Key)
		if err != nil {
			return nil, err
		}
		one := grammar.Sequence(grammar.Literal(key), colon, value, later)
		asFirst, asLater := one, grammar.Sequence(comma, one)
		if !p.required {
			asFirst, asLater = grammar.Choice(one, first), grammar.Choice(asLater, later)
		}
		first, later = asFirst, asLater
	}
	return grammar.Sequence(grammar.Literal("{"), first), nil
}

func (c *Compiler) array(s schema) (*grammar.Symbol, error) {
	least, most, err := bounds(s, "minItems", "maxItems")
	if err != nil {
		return nil, err
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
