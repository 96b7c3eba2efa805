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
	read  map[string]*signature
}

// A signature is the schema of a tool's arguments.
type signature struct {
	property
	defs map[string]property // by their references
}

// takes returns the types of a parameter, or of a member of it, or the zero Value if the schema does
// not say.
func (p *parameters) takes(tool string, path ...string) toolcall.Value {
	of, known := p.read[tool]
	if !known {
		if p.read == nil {
			p.read = map[string]*signature{}
		}
		of = &signature{}
		if i := slices.IndexFunc(p.tools, func(t *chatv1.Tool) bool { return t.GetName() == tool }); i >= 0 {
			of = signatureOf(p.tools[i].GetParameters())
		}
		p.read[tool] = of
	}
	at := of.property
	for _, name := range path {
		at = of.member(at, name)
	}
	return at.value(of.defs, maxRefs)
}

// signatureOf parses the schema of a tool's arguments. An invalid schema says nothing.
func signatureOf(schema string) *signature {
	var s signature
	var definitions struct {
		Defs        map[string]property `json:"$defs"`
		Definitions map[string]property `json:"definitions"`
	}
	if json.Unmarshal([]byte(schema), &s.property) != nil || json.Unmarshal([]byte(schema), &definitions) != nil {
		return &signature{}
	}
	s.defs = map[string]property{}
	for name, of := range definitions.Defs {
		s.defs["#/$defs/"+name] = of
	}
	for name, of := range definitions.Definitions {
		s.defs["#/definitions/"+name] = of
	}
	return &s
}

// member returns the schema of a property or of the items.
func (s *signature) member(of property, name string) property {
	for range maxRefs {
		switch to, isProperty := of.Properties[name]; {
		case isProperty:
			return to
		case name == toolcall.Item && of.Items != nil:
			return *of.Items
		case of.Ref == "":
			return property{}
		}
		of = s.defs[of.Ref]
	}
	return property{}
}

// maxRefs bounds the references from one definition to another.
const maxRefs = 8

// A property is the part of a schema that says which types a value has.
type property struct {
	Type     oneOrMore  `json:"type"`
	Enum     []any      `json:"enum"`
	Const    any        `json:"const"`
	AnyOf    []property `json:"anyOf"`
	OneOf    []property `json:"oneOf"`
	AllOf    []property `json:"allOf"`
	Ref      string     `json:"$ref"`
	Nullable bool       `json:"nullable"`

	Properties map[string]property `json:"properties"`
	Items      *property           `json:"items"`
}

// UnmarshalJSON implements json.Unmarshaler. A schema that is not an object, or that has fields of
// other types, says nothing.
func (s *property) UnmarshalJSON(b []byte) error {
	type plain property
	if json.Unmarshal(b, (*plain)(s)) != nil {
		*s = property{}
	}
	return nil
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

var valueTypes = map[string]toolcall.Value{
	"string": toolcall.TextValue, "null": toolcall.NullValue, "number": toolcall.NumberValue, "integer": toolcall.NumberValue,
	"boolean": toolcall.BooleanValue, "array": toolcall.ListValue, "object": toolcall.ObjectValue,
}

// value returns the types that a value may have. refs is the number of references that it follows.
func (s *property) value(defs map[string]property, refs int) (v toolcall.Value) {
	var parts []toolcall.Value
	switch {
	case len(s.Type) > 0:
		for _, name := range s.Type {
			parts = append(parts, valueTypes[name])
		}
	case len(s.Enum) > 0:
		for _, value := range s.Enum {
			parts = append(parts, typeOf(value))
		}
	case s.Const != nil:
		parts = append(parts, typeOf(s.Const))
	case s.Ref != "" && refs > 0:
		to := defs[s.Ref]
		parts = append(parts, to.value(defs, refs-1))
	case refs > 0:
		for _, other := range slices.Concat(s.AnyOf, s.OneOf, s.AllOf) {
			parts = append(parts, other.value(defs, refs-1))
		}
	}
	for _, part := range parts {
		if part == toolcall.AnyValue {
			return toolcall.AnyValue
		}
		v |= part
	}
	if s.Nullable && v != toolcall.AnyValue {
		v |= toolcall.NullValue
	}
	return v
}

// typeOf returns the type of a value of JSON.
func typeOf(value any) toolcall.Value {
	switch value.(type) {
	case nil:
		return toolcall.NullValue
	case string:
		return toolcall.TextValue
	case bool:
		return toolcall.BooleanValue
	case float64:
		return toolcall.NumberValue
	case []any:
		return toolcall.ListValue
	default:
		return toolcall.ObjectValue
	}
}
