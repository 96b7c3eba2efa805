package schema

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// assertions are keywords that affect validity, and that guides enforce only where they can be
// rewritten. All other unknown keywords are annotations.
var assertions = map[string]bool{
	"not": true, "if": true, "then": true, "else": true, "contains": true, "minContains": true, "maxContains": true,
	"minProperties": true, "maxProperties": true, "dependentRequired": true, "dependentSchemas": true, "dependencies": true,
	"unevaluatedProperties": true, "unevaluatedItems": true, "additionalItems": true, "$dynamicRef": true, "$recursiveRef": true,
	"nullable": true,
}

// rewrite expresses the assertions of a schema by enforced keywords, and older spellings by today's.
// It refuses what cannot be expressed. none reports that no value is valid.
func (s schema) rewrite(asserted map[string]json.RawMessage) (none bool, err error) {
	s.older(asserted)
	for _, name := range slices.Sorted(keys(asserted)) {
		value := bytes.TrimSpace(asserted[name])
		switch {
		case string(value) == "null":
		case name == "nullable":
			s.null(value)
		case name == "not" && (string(value) == "{}" || string(value) == "true"):
			none = true
		case name == "not" && s.lacking(value):
		case !s.without(name, value, asserted):
			return false, s.wrong(name, "this keyword is not supported")
		}
	}
	return none, nil
}

// older rewrites the spellings of older drafts: lists of items, and bounds that booleans make open.
func (s schema) older(asserted map[string]json.RawMessage) {
	if items := bytes.TrimSpace(s.is["items"]); bytes.HasPrefix(items, []byte("[")) && s.is["prefixItems"] == nil {
		delete(s.is, "items")
		if string(items) != "[]" {
			s.is["prefixItems"] = items
		}
		if more, ok := asserted["additionalItems"]; ok {
			s.is["items"] = more
		}
	}
	delete(asserted, "additionalItems") // has no meaning beside one schema for all items
	for closed, open := range map[string]string{"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"} {
		switch string(bytes.TrimSpace(s.is[open])) {
		case "true":
			if delete(s.is, open); s.is[closed] != nil {
				s.is[open] = s.is[closed]
				delete(s.is, closed)
			}
		case "false":
			delete(s.is, open)
		}
	}
}

// lacking enforces a not of schemas that only require one property each, and reports whether it is one:
// the object has none of these properties.
func (s schema) lacking(value json.RawMessage) bool {
	names, ok := requires(value, 0)
	if !ok {
		return false
	}
	if types := typeNames(s.is["type"]); types != nil && !slices.Contains(types, "object") {
		return false // no value is valid, which is hardly meant
	}
	own := schemaObject{}
	for _, name := range []string{"properties", "additionalProperties", "patternProperties"} {
		if raw, ok := s.is[name]; ok {
			own[name] = raw
		}
	}
	both, err := intersectObjects([]schemaObject{own, {"properties": propertiesOf(names, json.RawMessage("false"))}})
	if err != nil {
		return false
	}
	maps.Copy(s.is, both)
	s.is["type"] = json.RawMessage(`"object"`)
	return true
}

// requires returns the properties that a schema, or any branch of its anyOf, requires, if each requires
// one property and nothing else.
func requires(raw json.RawMessage, depth int) (names []string, ok bool) {
	all, err := members(raw)
	if err != nil || depth > maxDepth {
		return nil, false
	}
	for _, m := range all {
		var list []json.RawMessage
		switch m.Key {
		case "type":
			ok = string(bytes.TrimSpace(m.Value)) == `"object"`
		case "required":
			ok = json.Unmarshal(m.Value, &names) == nil && len(names) == 1
		case "anyOf":
			ok = json.Unmarshal(m.Value, &list) == nil && len(all) == 1
			for _, branch := range list {
				more, is := requires(branch, depth+1)
				names, ok = append(names, more...), ok && is
			}
		default:
			ok = !assertions[m.Key] && !enforced[m.Key] // is an annotation
		}
		if !ok {
			return nil, false
		}
	}
	return names, len(names) > 0
}

// propertiesOf returns the keyword properties that gives some names one schema.
func propertiesOf(names []string, of json.RawMessage) json.RawMessage {
	slices.Sort(names)
	var all []member
	for _, name := range slices.Compact(names) {
		all = append(all, member{Key: name, Value: of})
	}
	return objectOf(all)
}

// null adds null to the types of a schema, as OpenAPI's nullable does.
func (s schema) null(value json.RawMessage) {
	types := typeNames(s.is["type"])
	if string(value) == "true" && len(types) > 0 && !slices.Contains(types, "null") {
		if list, err := json.Marshal(append(types, "null")); err == nil { // always, for strings
			s.is["type"] = list
		}
	}
}

// without reports whether the schema means the same without an assertion, or with the enforced
// keywords that without adds.
func (s schema) without(name string, value json.RawMessage, asserted map[string]json.RawMessage) bool {
	empty := func(name string) bool {
		v := string(bytes.TrimSpace(asserted[name]))
		return v == "" || v == "{}" || v == "true"
	}
	combines := slices.ContainsFunc(combiners, func(c string) bool { return s.is[c] != nil })
	switch name {
	case "not":
		return string(value) == "false"
	case "if":
		return empty("then") && empty("else")
	case "then", "else":
		return asserted["if"] == nil || empty(name)
	case "dependentRequired", "dependentSchemas", "dependencies":
		return string(value) == "{}"
	case "minContains", "maxContains":
		return asserted["contains"] == nil
	case "unevaluatedProperties", "unevaluatedItems":
		to := map[string]string{"unevaluatedProperties": "additionalProperties", "unevaluatedItems": "items"}[name]
		if !combines && s.is[to] == nil {
			s.is[to] = value
		}
		return empty(name) || !combines
	case "minProperties":
		return s.atLeast(value)
	case "maxProperties":
		n, err := strconv.Atoi(string(value))
		all, wrong := members(orEmpty(s.is["properties"]))
		return err == nil && wrong == nil && !combines && s.is["patternProperties"] == nil && string(bytes.TrimSpace(s.is["additionalProperties"])) == "false" && n >= len(all)
	default:
		return false
	}
}

// atLeast enforces the number of properties of an object as far as one, or the required ones.
func (s schema) atLeast(value json.RawMessage) bool {
	n, err := strconv.Atoi(string(value))
	var required []string
	if raw, ok := s.is["required"]; ok && json.Unmarshal(raw, &required) != nil {
		return true // which is refused later
	}
	slices.Sort(required)
	required = slices.Compact(required)
	s.is[nonEmpty] = json.RawMessage("1")
	if n <= len(required) {
		delete(s.is, nonEmpty)
	}
	return err == nil && n >= 0 && n <= max(1, len(required))
}

// nonEmpty is the keyword of our own for an object that has a property.
const nonEmpty = "minProperties"

func orEmpty(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("{}")
	}
	return raw
}

func keys(of map[string]json.RawMessage) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range of {
			if !yield(name) {
				return
			}
		}
	}
}
