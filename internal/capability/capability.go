// Package capability compares the fields that a request sets with the fields that an engine
// supports. The names are the field names of whence.llm.v1.Sampling, which Capabilities.sampling
// lists. A new field of Sampling counts as a demand wherever it is set, so every engine that does
// not list it refuses it; the map neutral has the exceptions.
package capability

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// neutral has the neutral values of fields: with such a value, an engine behaves the same without
// the field.
var neutral = map[protoreflect.Name]func(protoreflect.Value) bool{
	"top_k":              func(v protoreflect.Value) bool { return v.Uint() == 0 },
	"min_p":              func(v protoreflect.Value) bool { return v.Float() == 0 },
	"repetition_penalty": func(v protoreflect.Value) bool { return v.Float() == 1 },
	"frequency_penalty":  func(v protoreflect.Value) bool { return v.Float() == 0 },
	"presence_penalty":   func(v protoreflect.Value) bool { return v.Float() == 0 },
	"min_tokens":         func(v protoreflect.Value) bool { return v.Uint() == 0 },
}

// RequestedFields returns the names of the fields that have an effect, in the proto's order.
func RequestedFields(s *llmv1.Sampling) []string {
	if s == nil {
		return nil
	}
	var asked []protoreflect.FieldDescriptor
	s.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if no := neutral[field.Name()]; no == nil || !no(v) {
			asked = append(asked, field)
		}
		return true
	})
	slices.SortFunc(asked, func(a, b protoreflect.FieldDescriptor) int { return a.Index() - b.Index() })
	names := make([]string, len(asked))
	for i, field := range asked {
		names[i] = string(field.Name())
	}
	return names
}

// Missing returns the fields that s demands and an engine does not list, or does not honour as s sets
// them, in the proto's order. A nil can, of an engine that reports nothing, counts as everything: such
// an engine refuses requests itself.
func Missing(s *llmv1.Sampling, can *llmv1.Capabilities) []string {
	if can == nil {
		return nil
	}
	return slices.DeleteFunc(RequestedFields(s), func(field string) bool {
		return slices.Contains(can.GetSampling(), field) && honours(can, s, field)
	})
}
