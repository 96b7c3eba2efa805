package schema

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
	"github.com/whence-dev/whence/llm-worker/guide/pattern"
)

// object matches an object. The properties that the schema names come first, in the schema's order;
// those that are not required may be absent. Properties whose names match a pattern may follow. A
// schema without names and patterns allows any properties.
func (c *Compiler) object(s schema) (*grammar.Symbol, error) {
	patterns, err := c.namePatterns(s)
	if err != nil {
		return nil, err
	}
	enumerated, err := c.enumerate(s, patterns)
	if err != nil {
		return nil, err
	}
	properties, err := s.properties(patterns)
	if err != nil {
		return nil, err
	}
	others := s.others()
	if len(properties) > 0 || len(patterns) > 0 || string(others) == "false" {
		rule, err := c.nameRule(s)
		if err != nil {
			return nil, err
		}
		for i := range properties {
			if !rule.allows(properties[i].Key) {
				properties[i].Value = json.RawMessage("false")
			}
		}
		if enumerated || len(patterns) == 0 {
			return c.named(s, properties, nil)
		}
		further, err := c.matching(s, patterns, properties, rule)
		if err != nil {
			return nil, err
		}
		return c.named(s, properties, further)
	}
	key := text
	if names, named := s.is["propertyNames"]; named {
		if key, err = c.schema(s.below(intersect(json.RawMessage(`{"type":"string"}`), names), "propertyNames")); err != nil {
			return nil, err
		}
	}
	one, err := c.schema(s.below(others, "additionalProperties"))
	if err != nil {
		return nil, err
	}
	least := 0
	if s.is[nonEmpty] != nil {
		least = 1
	}
	return list("{", grammar.Sequence(key, colon, one), least, -1, "}"), nil
}

// propertyNames returns the schema of propertyNames, with what it refers to.
func (c *Compiler) propertyNames(s schema) (schema, error) {
	of, err := parse(s.below(s.is["propertyNames"], "propertyNames"))
	if err != nil || of.none {
		return of, err
	}
	var g gathering
	if err := c.gather(of, &g); err != nil || len(g.unions) > 0 {
		return of, err
	}
	of.none = g.none
	of.is, err = g.merged(of.node)
	return of, err
}

// A nameRule is what propertyNames asks of names.
type nameRule struct {
	conditions  []pattern.Condition
	least, most int // characters
	allows      func(name string) bool
}

// nameRule returns the rule for names beside others that are known or match a pattern.
func (c *Compiler) nameRule(s schema) (nameRule, error) {
	rule := nameRule{most: -1, allows: func(string) bool { return true }}
	if s.is["propertyNames"] == nil {
		return rule, nil
	}
	of, err := c.propertyNames(s)
	if err != nil {
		return rule, err
	}
	if of.none {
		rule.allows = func(string) bool { return false }
		return rule, nil
	}
	for _, k := range Keywords {
		if _, is := of.is[k.Name]; is && k.implies != "string" && k.Name != "type" {
			return rule, s.wrong("propertyNames", "beside properties, required or patternProperties it can have only an enum, or keywords of strings, and has %s", k.Name)
		}
	}
	if types, err := typesOf(of); err != nil || len(types) > 0 && !slices.Contains(types, "string") {
		return rule, s.wrong("propertyNames", "its type must be string")
	}
	if rule.conditions, _, err = of.conditions(); err != nil {
		return rule, err
	}
	if rule.least, rule.most, err = bounds(of, "minLength", "maxLength"); err != nil {
		return rule, err
	}
	rule.allows, err = c.boundedText(of)
	return rule, err
}

// enumerate replaces propertyNames that are an enum by properties, and reports whether it has: those of
// the enum may be there, and no others.
func (c *Compiler) enumerate(s schema, patterns []namePattern) (bool, error) {
	if s.is["propertyNames"] == nil {
		return false, nil
	}
	of, err := c.propertyNames(s)
	if err != nil {
		return false, err
	}
	var names []string
	if raw, ok := of.is["const"]; ok {
		names = make([]string, 1)
		err = json.Unmarshal(raw, &names[0])
	} else if raw, ok := of.is["enum"]; ok {
		err = json.Unmarshal(raw, &names)
	}
	for name := range of.is {
		if err != nil || name != "enum" && name != "const" && name != "type" {
			return false, nil //nolint:nilerr // names in another form are compiled as texts, or refused
		}
	}
	if names == nil {
		return false, nil
	}
	allowed := make(map[string]bool, len(names))
	for _, name := range names {
		allowed[name] = true
	}
	known, err := members(orEmpty(s.is["properties"]))
	if err != nil {
		return false, s.wrong("properties", "it must be an object: %v", err)
	}
	for i, m := range known {
		if !allowed[m.Key] {
			known[i].Value = json.RawMessage("false")
		}
		delete(allowed, m.Key)
	}
	for _, name := range names {
		if !allowed[name] {
			continue
		}
		one := member{Key: name, Value: s.others()}
		if slices.ContainsFunc(patterns, func(by namePattern) bool { return by.match(name) }) {
			one.Value = json.RawMessage("true") // their schemas come later
		}
		known = append(known, one)
		delete(allowed, name)
	}
	delete(s.is, "propertyNames")
	s.is["properties"], s.is["additionalProperties"] = objectOf(known), json.RawMessage("false")
	return true, nil
}

// others returns the schema of the properties that s does not name.
func (s schema) others() json.RawMessage {
	return schemaObject(s.is).Others()
}

// A namePattern is a member of patternProperties.
type namePattern struct {
	member
	match func(name string) bool
}

// maxNamePatterns bounds the patterns of one schema, because a name may match any set of them.
const maxNamePatterns = 4

// namePatterns returns the members of patternProperties.
func (c *Compiler) namePatterns(s schema) (all []namePattern, err error) {
	const keyword = "patternProperties"
	raw, ok := s.is[keyword]
	if !ok {
		return nil, nil
	}
	list, err := members(raw)
	if err != nil {
		return nil, s.wrong(keyword, "it must be an object: %v", err)
	}
	if len(list) > maxNamePatterns {
		return nil, s.wrong(keyword, "it has %d patterns; it can have %d", len(list), maxNamePatterns)
	}
	for _, m := range list {
		match, err := pattern.Match(m.Key, &c.patterns)
		if err != nil {
			return nil, s.wrong(keyword, "%.64q: %v", m.Key, err)
		}
		all = append(all, namePattern{m, match})
	}
	return all, nil
}

// matching matches a property whose name matches patterns, and is none of properties. All schemas of
// the patterns that a name matches must hold; names for which that cannot be enforced are not written.
func (c *Compiler) matching(s schema, patterns []namePattern, properties []property, rule nameRule) (*grammar.Symbol, error) {
	const keyword = "patternProperties"
	var known []string
	for _, p := range properties {
		if slices.ContainsFunc(patterns, func(by namePattern) bool { return by.match(p.Key) }) {
			known = append(known, p.Key)
		}
	}
	one := grammar.Choice()
	for set := 1; set < 1<<len(patterns); set++ {
		value, names := json.RawMessage("true"), slices.Clone(rule.conditions)
		for i, p := range patterns {
			in := set&(1<<i) != 0
			if names = append(names, pattern.Condition{Expression: p.Key, Not: !in}); in {
				value = intersect(value, p.Value)
			}
		}
		if known != nil {
			names = append(names, pattern.Condition{Expression: pattern.Exactly(known), Not: true})
		}
		d, err := pattern.Compile(names, rule.least, rule.most, &c.patterns)
		if err != nil {
			return nil, s.wrong(keyword, "%v", err)
		}
		name, err := c.run(s, d)
		if err != nil {
			return nil, err
		}
		if name == nil {
			continue
		}
		of, err := c.schema(s.below(value, keyword))
		if _, wrong := errors.AsType[*Error](err); wrong && set&(set-1) != 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		one.Or(grammar.Sequence(name, colon, of))
	}
	return one, nil
}

// A property is a property that a schema names.
type property struct {
	member
	where    string // the keyword that has its schema
	required bool
}

// properties returns the properties that s names in properties and required, with all that must hold
// for their values.
func (s schema) properties(patterns []namePattern) (all []property, err error) {
	if raw, ok := s.is["properties"]; ok {
		list, err := members(raw)
		if err != nil {
			return nil, s.wrong("properties", "it must be an object: %v", err)
		}
		for _, m := range list {
			all = append(all, property{member: m, where: "properties"})
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
			continue
		case slices.ContainsFunc(patterns, func(by namePattern) bool { return by.match(name) }):
			all = append(all, property{member{Key: name, Value: json.RawMessage("true")}, "patternProperties", true})
		case string(others) == "false":
			return nil, s.wrong("required", "it has the property %.64q, which additionalProperties does not allow", name)
		default:
			all = append(all, property{member{Key: name, Value: others}, "additionalProperties", true})
		}
		index[name] = len(all) - 1
	}
	for i := range all {
		for _, p := range patterns {
			if p.match(all[i].Key) {
				all[i].Value = intersect(all[i].Value, p.Value)
			}
		}
	}
	return all, nil
}

// named matches an object with these properties; others, if it is not nil, matches one of those that
// may follow. What may follow depends on the index of the next property, and on whether a property has
// come before.
func (c *Compiler) named(s schema, properties []property, others *grammar.Symbol) (*grammar.Symbol, error) {
	first, later := grammar.Literal("}"), grammar.Literal("}")
	if s.is[nonEmpty] != nil {
		first = grammar.Choice() // nothing
	}
	if others != nil {
		later = grammar.Sequence(grammar.Repeat(0, -1, grammar.Sequence(comma, others)), later)
		first = grammar.Choice(grammar.Sequence(others, later), first)
	}
	for _, p := range slices.Backward(properties) {
		at := s.below(p.Value, p.where)
		if p.where == "properties" {
			at = s.below(p.Value, p.where, p.Key)
		}
		value, err := c.schema(at)
		if err != nil {
			return nil, err
		}
		key, err := plainJSON(p.Key)
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
