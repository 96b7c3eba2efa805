package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// A schemaObject has the keywords of a schema object, without annotations, references and the
// keywords that combine schemas.
type schemaObject map[string]json.RawMessage

// further are keywords of our own: lists of the values of a keyword that must hold, too. Their
// names are no JSON Schema's.
var further = map[string]string{"pattern": "pattern and", "format": "format and"}

// further adds the values of a keyword, and of its list, to those of o.
func (o schemaObject) further(name string, other schemaObject) error {
	var all []json.RawMessage
	for _, from := range []schemaObject{other, o} {
		var more []json.RawMessage
		if raw := from[further[name]]; raw != nil && json.Unmarshal(raw, &more) != nil {
			return &mergeConflict{name, "it must be a string"}
		}
		if raw := from[name]; raw != nil {
			more = append([]json.RawMessage{raw}, more...)
		}
		for _, raw := range more {
			if !slices.ContainsFunc(all, func(known json.RawMessage) bool { return sameJSON(known, raw) }) {
				all = append(all, raw)
			}
		}
	}
	if len(all) > 0 {
		o[name] = all[0]
	}
	if len(all) > 1 {
		o[further[name]] = rawArray(all[1:])
	}
	return nil
}

// A mergeConflict is a keyword whose values in two schemas cannot be intersected.
type mergeConflict struct{ Keyword, Problem string }

func (c *mergeConflict) Error() string { return c.Keyword + ": " + c.Problem }

// intersectObjects makes one of several schema objects, which it changes: exactly those values are
// valid under it that are valid under all of them. Its errors are a *mergeConflict.
func intersectObjects(all []schemaObject) (schemaObject, error) {
	switch len(all) {
	case 0:
		return schemaObject{}, nil
	case 1:
		return all[0], nil
	}
	half := len(all) / 2 // one after another, the members of the first would be read again and again
	one, err := intersectObjects(all[:half])
	if err != nil {
		return nil, err
	}
	other, err := intersectObjects(all[half:])
	if err != nil {
		return nil, err
	}
	return one, one.with(other)
}

// Raw returns o as JSON.
func (o schemaObject) Raw() json.RawMessage {
	keys := slices.Sorted(maps.Keys(o))
	all := make([]member, len(keys))
	for i, k := range keys {
		all[i] = member{Key: k, Value: o[k]}
	}
	return objectOf(all)
}

// intersect returns a schema under which the values are valid that are valid under both schemas.
func intersect(a, b json.RawMessage) json.RawMessage {
	a, b = bytes.TrimSpace(a), bytes.TrimSpace(b)
	switch {
	case string(a) == "false", allowsAll(b):
		return a
	case string(b) == "false", allowsAll(a), bytes.Equal(a, b):
		return b
	}
	return slices.Concat([]byte(`{"allOf":[`), a, []byte(","), b, []byte("]}"))
}

func allowsAll(schema json.RawMessage) bool {
	return string(schema) == "true" || string(schema) == "{}"
}

// with adds the keywords of other to o.
func (o schemaObject) with(other schemaObject) error {
	if o.splits(other) || other.splits(o) {
		return &mergeConflict{"prefixItems", "another schema that must hold has items without the same prefixItems"}
	}
	if o.divides(other) || other.divides(o) {
		return &mergeConflict{"patternProperties", "another schema that must hold has additionalProperties without the same patternProperties"}
	}
	if err := o.withProperties(other); err != nil {
		return err
	}
	if err := o.withValues(other); err != nil {
		return err
	}
	for name := range further {
		if err := o.further(name, other); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(other)) {
		value, old := other[name], o[name]
		switch name {
		case "properties", "additionalProperties", "enum", "const", "pattern", "format", further["pattern"], further["format"]:
			continue
		}
		if old == nil {
			o[name] = value
			continue
		}
		var err error
		switch name {
		case "type":
			value, err = intersectTypes(old, value)
		case "required":
			value, err = uniteNames(old, value)
		case "minimum", "exclusiveMinimum", "minLength", "minItems":
			value = tighterBound(old, value, func(a, b float64) bool { return a > b })
		case "maximum", "exclusiveMaximum", "maxLength", "maxItems":
			value = tighterBound(old, value, func(a, b float64) bool { return a < b })
		case "items", "propertyNames":
			value = intersect(old, value)
		default:
			if !sameJSON(old, value) {
				err = &mergeConflict{name, "two schemas that must both hold have different values"}
			}
		}
		if err != nil {
			return err
		}
		o[name] = value
	}
	return nil
}

// splits reports whether the items of other would have to be valid under parts of o's prefixItems.
func (o schemaObject) splits(other schemaObject) bool {
	return o["prefixItems"] != nil && other["prefixItems"] == nil && other["items"] != nil
}

// divides reports whether the additionalProperties of other would have to hold for o's
// patternProperties.
func (o schemaObject) divides(other schemaObject) bool {
	return o["patternProperties"] != nil && other["patternProperties"] == nil && !allowsAll(other.Others())
}

// excludes reports whether o's patternProperties could apply to a property that only other names, so
// that o's additionalProperties would not.
func (o schemaObject) excludes(mine, theirs []member) bool {
	return o["patternProperties"] != nil && !allowsAll(o.Others()) && slices.ContainsFunc(theirs, func(m member) bool {
		return !slices.ContainsFunc(mine, func(known member) bool { return known.Key == m.Key })
	})
}

// Others returns the schema of the properties that o does not name.
func (o schemaObject) Others() json.RawMessage {
	if v, ok := o["additionalProperties"]; ok {
		return bytes.TrimSpace(v)
	}
	return json.RawMessage("true")
}

// withProperties intersects the properties. A property that one schema does not name must be valid
// under its additionalProperties.
func (o schemaObject) withProperties(other schemaObject) error {
	a, b := o.Others(), other.Others()
	mine, err := o.properties()
	if err != nil {
		return err
	}
	theirs, err := other.properties()
	if err != nil {
		return err
	}
	if o.excludes(mine, theirs) || other.excludes(theirs, mine) {
		return &mergeConflict{"patternProperties", "another schema that must hold has properties that it may match, and additionalProperties stands beside it"}
	}
	byName := make(map[string]json.RawMessage, len(theirs))
	for _, m := range theirs {
		byName[m.Key] = m.Value
	}
	known := make(map[string]bool, len(mine))
	for i, m := range mine {
		known[m.Key] = true
		if theirs, ok := byName[m.Key]; ok {
			mine[i].Value = intersect(m.Value, theirs)
		} else {
			mine[i].Value = intersect(m.Value, b)
		}
	}
	for _, m := range theirs {
		if !known[m.Key] {
			mine = append(mine, member{Key: m.Key, Value: intersect(a, m.Value)})
		}
	}
	if o["properties"] != nil || other["properties"] != nil {
		o["properties"] = objectOf(mine)
	}
	if o["additionalProperties"] != nil || other["additionalProperties"] != nil {
		o["additionalProperties"] = intersect(a, b)
	}
	return nil
}

func (o schemaObject) properties() ([]member, error) {
	v := o["properties"]
	if v == nil {
		return nil, nil
	}
	all, err := members(v)
	if err != nil {
		return nil, &mergeConflict{"properties", fmt.Sprintf("it must be an object: %v", err)}
	}
	return all, nil
}

// withValues intersects enum and const.
func (o schemaObject) withValues(other schemaObject) error {
	mine, err := o.values()
	if err != nil {
		return err
	}
	theirs, err := other.values()
	switch {
	case err != nil:
		return err
	case theirs == nil:
		return nil
	case mine == nil:
		mine = theirs
	default:
		mine = slices.DeleteFunc(mine, func(a json.RawMessage) bool {
			return !slices.ContainsFunc(theirs, func(b json.RawMessage) bool { return sameJSON(a, b) })
		})
	}
	if len(mine) == 0 {
		return &mergeConflict{"enum", "no value is in the enum or const of all schemas that must hold"}
	}
	delete(o, "const")
	o["enum"], err = json.Marshal(mine)
	return err
}

// values returns the values of enum and const, or nil if there is neither.
func (o schemaObject) values() (all []json.RawMessage, err error) {
	if v := o["enum"]; v != nil && (json.Unmarshal(v, &all) != nil || len(all) == 0) {
		return nil, &mergeConflict{"enum", "it must be a list that is not empty"}
	}
	if v := o["const"]; v != nil {
		if all != nil && !slices.ContainsFunc(all, func(a json.RawMessage) bool { return sameJSON(a, v) }) {
			return nil, &mergeConflict{"const", "it is not a value of enum"}
		}
		all = []json.RawMessage{v}
	}
	return all, nil
}

// intersectTypes intersects two values of type. An integer is a number.
func intersectTypes(a, b json.RawMessage) (json.RawMessage, error) {
	mine, theirs := typeNames(a), typeNames(b)
	if mine == nil || theirs == nil {
		return nil, &mergeConflict{"type", "it must be a string, or a list of strings"}
	}
	var both []string
	for _, t := range mine {
		switch {
		case slices.Contains(theirs, t), t == "integer" && slices.Contains(theirs, "number"):
			both = append(both, t)
		case t == "number" && slices.Contains(theirs, "integer"):
			both = append(both, "integer")
		}
	}
	if len(both) == 0 {
		return nil, &mergeConflict{"type", "no value has the type of all schemas that must hold"}
	}
	return json.Marshal(both)
}

// typeNames returns the types that a value of the keyword type names, or nil if it is not valid.
func typeNames(v json.RawMessage) (all []string) {
	var one string
	if json.Unmarshal(v, &one) == nil {
		return []string{one}
	}
	if json.Unmarshal(v, &all) != nil || len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func uniteNames(a, b json.RawMessage) (json.RawMessage, error) {
	var mine, theirs []string
	if json.Unmarshal(a, &mine) != nil || json.Unmarshal(b, &theirs) != nil {
		return nil, &mergeConflict{"required", "it must be a list of strings"}
	}
	for _, name := range theirs {
		if !slices.Contains(mine, name) {
			mine = append(mine, name)
		}
	}
	return json.Marshal(mine)
}

// tighterBound returns the tighter of two bounds, or the one that is not a number.
func tighterBound(a, b json.RawMessage, than func(a, b float64) bool) json.RawMessage {
	var x, y *float64
	if json.Unmarshal(a, &x) != nil || x == nil {
		return a
	}
	if json.Unmarshal(b, &y) != nil || y == nil || than(*y, *x) {
		return b
	}
	return a
}

// sameJSON reports whether two values are equal as JSON.
func sameJSON(a, b json.RawMessage) bool {
	x, errX := canonical(a)
	y, errY := canonical(b)
	return errX == nil && errY == nil && x == y
}
