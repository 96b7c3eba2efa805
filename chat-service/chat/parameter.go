package chat

import (
	"encoding/json"
	"slices"

	"github.com/whence-dev/whence/chat-service/toolcall"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// parameters knows the types of tool parameters. It parses the schema of a tool at the tool's first
// call, because requests offer many tools of which few are called.
type parameters struct {
	tools []*chatv1.Tool
	read  map[string]map[string]toolcall.Value
}

// takes returns the kind of value that a tool's parameter takes, or the zero Value if the schema
// does not say.
func (p *parameters) takes(tool, parameter string) toolcall.Value {
	of, known := p.read[tool]
	if !known {
		if p.read == nil {
			p.read = map[string]map[string]toolcall.Value{}
		}
		if i := slices.IndexFunc(p.tools, func(t *chatv1.Tool) bool { return t.GetName() == tool }); i >= 0 {
			of = values(p.tools[i].GetParameters())
		}
		p.read[tool] = of
	}
	return of[parameter]
}

// values returns the kinds of value of the properties of an object's schema.
func values(schema string) map[string]toolcall.Value {
	var object struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal([]byte(schema), &object) != nil {
		return nil
	}
	of := map[string]toolcall.Value{}
	for name, text := range object.Properties {
		var s property
		if json.Unmarshal(text, &s) == nil {
			of[name] = s.value()
		}
	}
	return of
}

// A property is the part of a schema that distinguishes text from other values.
type property struct {
	Type  oneOrMore  `json:"type"`
	Enum  []any      `json:"enum"`
	AnyOf []property `json:"anyOf"`
	OneOf []property `json:"oneOf"`
}

// oneOrMore is a type name, or a list of type names.
type oneOrMore []string

// UnmarshalJSON implements json.Unmarshaler.
func (o *oneOrMore) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*o = oneOrMore{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(o))
}

// types returns the names of the types that a value may have; "" stands for types that are not
// specified.
func (s *property) types() (all []string) {
	either := slices.Concat(s.AnyOf, s.OneOf)
	switch {
	case len(s.Type) > 0:
		return s.Type
	case len(s.Enum) > 0:
		for _, v := range s.Enum {
			name := ""
			switch v.(type) {
			case string:
				name = "string"
			case nil:
				name = "null"
			}
			all = append(all, name)
		}
	case len(either) > 0:
		for _, s := range either {
			all = append(all, s.types()...)
		}
	default:
		return []string{""}
	}
	return all
}

func (s *property) value() toolcall.Value {
	types := s.types()
	switch text := slices.Contains(types, "string"); {
	case !text || slices.ContainsFunc(types, func(name string) bool { return name != "string" && name != "null" }):
		return toolcall.AnyValue
	case slices.Contains(types, "null"):
		return toolcall.TextOrNull
	default:
		return toolcall.TextValue
	}
}
