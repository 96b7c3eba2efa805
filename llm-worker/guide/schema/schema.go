// Package schema compiles JSON Schemas into grammars of the values that are valid under them.
package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// A Compiler compiles the schemas of one guide, and bounds the size of all of them together.
type Compiler struct {
	left int // how many of maxParts are left

	root json.RawMessage
	refs map[string]*grammar.Symbol // by JSON pointer into root
	// Members of the objects that references pass through, by JSON pointer.
	members map[string]map[string]json.RawMessage
}

// maxParts bounds the size of a guide: its schemas, their values, and its numbers with bounds,
// which have many symbols each.
const (
	maxParts    = 1 << 14
	numberParts = 1 << 6
)

// NewCompiler returns a compiler of schemas that have at most maxParts parts together.
func NewCompiler() *Compiler { return &Compiler{left: maxParts} }

// take counts parts of the guide.
func (c *Compiler) take(n int) error {
	if c.left -= n; c.left < 0 {
		return errors.New("it has too many parts")
	}
	return nil
}

// Compile returns the values that are valid under a schema, which is a JSON document, and the root of
// its own references. An error names the keyword that cannot be enforced.
func (c *Compiler) Compile(text string) (*grammar.Symbol, error) {
	c.root, c.refs, c.members = json.RawMessage(text), map[string]*grammar.Symbol{}, map[string]map[string]json.RawMessage{}
	return c.schema(c.root, 0)
}

const maxDepth = 64

// annotations do not affect validity, or, like format, need not be enforced.
var annotations = []string{
	"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "example", "examples", "deprecated",
	"readOnly", "writeOnly", "format", "contentEncoding", "contentMediaType", "strict",
}

// keywords are enforced.
var keywords = []string{
	"type", "enum", "const", "$ref", "anyOf", "allOf", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
	"minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
}

// A schema holds the members of a schema object, without annotations.
type schema map[string]json.RawMessage

func (c *Compiler) schema(raw json.RawMessage, depth int) (*grammar.Symbol, error) {
	if depth > maxDepth {
		return nil, errors.New("it is nested too deeply")
	}
	if err := c.take(1); err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(raw)) == "true" {
		return anyValue, nil
	}
	all, err := members(raw)
	if err != nil {
		return nil, fmt.Errorf("a schema must be an object: %w", err)
	}
	s := schema{}
	for _, m := range all {
		switch {
		case slices.Contains(annotations, m.key):
		case slices.Contains(keywords, m.key):
			s[m.key] = m.value
		case m.key == "uniqueItems" && string(m.value) == "false":
		default:
			return nil, fmt.Errorf("it uses the keyword %.64q", m.key)
		}
	}
	for _, name := range []string{"$ref", "anyOf", "allOf", "const", "enum"} {
		if value, ok := s[name]; ok {
			return c.alone(s, name, value, depth)
		}
	}
	return c.types(s, depth)
}

// alone compiles a keyword that allows no other keyword beside it except type, which filters the
// values.
func (c *Compiler) alone(s schema, name string, value json.RawMessage, depth int) (*grammar.Symbol, error) {
	for other := range s {
		if other != name && (other != "type" || name != "enum" && name != "const") {
			return nil, fmt.Errorf("it uses %s beside %s", other, name)
		}
	}
	switch name {
	case "$ref":
		return c.ref(value, depth)
	case "const":
		return c.values(s, []json.RawMessage{value})
	}
	var list []json.RawMessage
	if err := json.Unmarshal(value, &list); err != nil || len(list) == 0 {
		return nil, fmt.Errorf("%s must be a list that is not empty", name)
	}
	if name == "enum" {
		return c.values(s, list)
	}
	if name == "allOf" && len(list) > 1 {
		return nil, errors.New("it uses allOf with more than one schema")
	}
	one := grammar.Choice()
	for _, raw := range list {
		part, err := c.schema(raw, depth+1)
		if err != nil {
			return nil, err
		}
		one.Or(part)
	}
	return one, nil
}

// values matches one of the values that have the schema's type.
func (c *Compiler) values(s schema, list []json.RawMessage) (*grammar.Symbol, error) {
	types, err := typesOf(s)
	if err != nil {
		return nil, err
	}
	if err := c.take(len(list)); err != nil {
		return nil, err
	}
	var texts []string
	for _, raw := range list {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, err
		}
		if len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return isOf(v, t) }) {
			continue
		}
		text, err := canonical(raw)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return grammar.OneText(slices.Compact(texts)), nil
}

// ref compiles a reference to another part of the document, which may contain the reference itself.
func (c *Compiler) ref(raw json.RawMessage, depth int) (*grammar.Symbol, error) {
	var pointer string
	if json.Unmarshal(raw, &pointer) != nil || !strings.HasPrefix(pointer, "#") {
		return nil, fmt.Errorf("it refers to %.64s, which is not in it", raw)
	}
	if known := c.refs[pointer]; known != nil {
		return known, nil
	}
	target, ok := c.at(pointer)
	if !ok {
		return nil, fmt.Errorf("it refers to %.64q, which is not in it", pointer)
	}
	s := grammar.Choice()
	c.refs[pointer] = s // before the target is compiled, because the target may refer to itself
	part, err := c.schema(target, depth+1)
	if err != nil {
		return nil, err
	}
	s.Or(part)
	return s, nil
}

// at returns what a JSON pointer points to.
func (c *Compiler) at(pointer string) (json.RawMessage, bool) {
	cut := strings.LastIndexByte(pointer, '/')
	if cut < 0 {
		return c.root, pointer == "#"
	}
	around, name := pointer[:cut], strings.NewReplacer("~1", "/", "~0", "~").Replace(pointer[cut+1:])
	inside, known := c.members[around]
	if !known {
		target, ok := c.at(around)
		if !ok {
			return nil, false
		}
		if all, err := members(target); err == nil {
			inside = make(map[string]json.RawMessage, len(all))
			for _, m := range all {
				inside[m.key] = m.value
			}
		}
		c.members[around] = inside
	}
	target, ok := inside[name]
	return target, ok
}

// types compiles a schema by its types. Without types, the keywords imply them.
func (c *Compiler) types(s schema, depth int) (*grammar.Symbol, error) {
	types, err := typesOf(s)
	if err != nil {
		return nil, err
	}
	if len(types) == 0 {
		for keyword, kind := range map[string]string{
			"properties": "object", "required": "object", "additionalProperties": "object", "items": "array", "minItems": "array", "maxItems": "array",
			"minLength": "string", "maxLength": "string", "minimum": "number", "maximum": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number",
		} {
			if _, ok := s[keyword]; ok && !slices.Contains(types, kind) {
				types = append(types, kind)
			}
		}
		if slices.Sort(types); len(types) == 0 {
			return anyValue, nil
		}
	}
	one := grammar.Choice()
	for _, kind := range types {
		part, err := c.typed(s, kind, depth)
		if err != nil {
			return nil, err
		}
		one.Or(part)
	}
	return one, nil
}

func (c *Compiler) typed(s schema, kind string, depth int) (*grammar.Symbol, error) {
	switch kind {
	case "object":
		return c.object(s, depth)
	case "array":
		return c.array(s, depth)
	case "string":
		least, most, err := bounds(s, "minLength", "maxLength")
		return quoted(grammar.Run(grammar.Characters, least, most)), err
	case "integer", "number":
		return c.number(s, kind == "integer")
	case "boolean":
		return boolean, nil
	case "null":
		return null, nil
	default:
		return nil, fmt.Errorf("there is no type %.64q", kind)
	}
}

func typesOf(s schema) ([]string, error) {
	raw, ok := s["type"]
	if !ok {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var types []string
	if json.Unmarshal(raw, &types) != nil || len(types) == 0 {
		return nil, errors.New("type must be a string, or a list of strings")
	}
	return types, nil
}

func isOf(v any, kind string) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case []any:
		return kind == "array"
	case float64:
		return kind == "number" || kind == "integer" && v == float64(int64(v))
	default:
		return kind == "object"
	}
}
