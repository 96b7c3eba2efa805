package schema

import (
	"slices"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// types compiles a schema by its types. Without types, the keywords imply them.
func (c *Compiler) types(s schema) (*grammar.Symbol, error) {
	types, err := typesOf(s)
	if err != nil {
		return nil, err
	}
	if len(types) == 0 {
		conditions, _, err := s.conditions()
		if err != nil {
			return nil, err
		}
		for _, k := range Keywords {
			_, is := s.is[k.Name]
			implies := is && k.implies != "" && (k.Name != "format" || len(conditions) > 0)
			if implies && !slices.Contains(types, k.implies) {
				types = append(types, k.implies)
			}
		}
		if slices.Sort(types); len(types) == 0 {
			return anyValue, nil
		}
	}
	one := grammar.Choice()
	for _, kind := range types {
		part, err := c.typed(s, kind)
		if err != nil {
			return nil, err
		}
		one.Or(part)
	}
	return one, nil
}

func (c *Compiler) typed(s schema, kind string) (*grammar.Symbol, error) {
	switch kind {
	case "object":
		return c.object(s)
	case "array":
		return c.array(s)
	case "string":
		return c.text(s)
	case "integer", "number":
		return c.number(s, kind == "integer")
	case "boolean":
		return boolean, nil
	case "null":
		return null, nil
	default:
		return nil, s.wrong("type", "there is no type %.64q", kind)
	}
}

func typesOf(s schema) ([]string, error) {
	raw, ok := s.is["type"]
	if !ok {
		return nil, nil
	}
	types := typeNames(raw)
	if types == nil {
		return nil, s.wrong("type", "it must be a string, or a list of strings")
	}
	return types, nil
}
