// Package capability says what a request asks of an engine, in the words in which workers say what theirs honours: the names of
// the fields of whence.llm.v1.Sampling, as Capabilities.sampling has them. A field that is added to Sampling is asked for
// wherever it is set, and so refused by every engine that does not list it, until somebody says otherwise.
package capability

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// nothing are the values that ask for nothing, by field: an engine that has no such field does the same.
var nothing = map[protoreflect.Name]func(protoreflect.Value) bool{
	"top_k":              func(v protoreflect.Value) bool { return v.Uint() == 0 },
	"min_p":              func(v protoreflect.Value) bool { return v.Float() == 0 },
	"repetition_penalty": func(v protoreflect.Value) bool { return v.Float() == 1 },
	"frequency_penalty":  func(v protoreflect.Value) bool { return v.Float() == 0 },
	"presence_penalty":   func(v protoreflect.Value) bool { return v.Float() == 0 },
	"min_tokens":         func(v protoreflect.Value) bool { return v.Uint() == 0 },
}

// Asked returns the names of the fields that ask for something, in the proto's order.
func Asked(s *llmv1.Sampling) []string {
	if s == nil {
		return nil
	}
	var asked []protoreflect.FieldDescriptor
	s.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if no := nothing[field.Name()]; no == nil || !no(v) {
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

// Missing returns what s asks for that can does not list, in the proto's order. An engine that says nothing of itself, with a
// nil can, is taken to honour everything: it refuses for itself.
func Missing(s *llmv1.Sampling, can *llmv1.Capabilities) []string {
	if can == nil {
		return nil
	}
	return slices.DeleteFunc(Asked(s), func(field string) bool { return slices.Contains(can.GetSampling(), field) })
}
