package capability_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/capability"
)

func TestNeutralValuesNeedNoCapability(t *testing.T) {
	for want, s := range map[string]*llmv1.Sampling{
		"": nil,
		" ": {TopK: proto.Uint32(0), MinP: proto.Float32(0), RepetitionPenalty: proto.Float32(1), FrequencyPenalty: proto.Float32(0),
			PresencePenalty: proto.Float32(0), MinTokens: proto.Uint32(0)},
		"temperature top_k stop_token_ids":    {StopTokenIds: []uint32{1}, TopK: proto.Uint32(1), Temperature: proto.Float32(0)},
		"seed max_tokens":                     {Seed: proto.Uint64(0), MaxTokens: proto.Uint32(9)},
		"min_p repetition_penalty logit_bias": {MinP: proto.Float32(0.1), RepetitionPenalty: proto.Float32(2), LogitBias: map[uint32]float32{1: 0}},
		"frequency_penalty presence_penalty":  {FrequencyPenalty: proto.Float32(-1), PresencePenalty: proto.Float32(1)},
		"top_p min_tokens ignore_eos":         {TopP: proto.Float32(1), MinTokens: proto.Uint32(2), IgnoreEos: true},
	} {
		if got := strings.Join(capability.RequestedFields(s), " "); got != strings.TrimSpace(want) {
			t.Errorf("%v asks for %q, not %q", s, got, want)
		}
	}
}

// TestEveryFieldCanBeRequested fails for a new field that RequestedFields does not see.
func TestEveryFieldCanBeRequested(t *testing.T) {
	fields := (*llmv1.Sampling)(nil).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		s := new(llmv1.Sampling)
		m := s.ProtoReflect()
		switch {
		case field.IsMap():
			m.Mutable(field).Map().Set(field.MapKey().Default().MapKey(), field.MapValue().Default())
		case field.IsList():
			list := m.Mutable(field).List()
			list.Append(list.NewElement())
		case field.Message() != nil:
			m.Set(field, m.NewField(field))
		default:
			m.Set(field, effectiveValue(t, field.Kind()))
		}
		if got := capability.RequestedFields(s); !slices.Equal(got, []string{string(field.Name())}) {
			t.Errorf("%s is set, and %v is asked for", field.Name(), got)
		}
	}
}

// effectiveValue returns a value that has an effect in every field of a kind.
func effectiveValue(t *testing.T, kind protoreflect.Kind) protoreflect.Value {
	t.Helper()
	switch kind {
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(0.5)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(2)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(2)
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("x")
	default:
		t.Fatalf("a field has kind %s: add a value with an effect for that kind here", kind)
		return protoreflect.Value{}
	}
}

func TestMissingReturnsUnlistedFields(t *testing.T) {
	s := &llmv1.Sampling{Temperature: proto.Float32(1), Seed: proto.Uint64(3), IgnoreEos: true}
	for list, want := range map[string]string{
		"temperature seed ignore_eos top_k": "", "temperature": "seed ignore_eos", "": "temperature seed ignore_eos",
	} {
		if got := strings.Join(capability.Missing(s, &llmv1.Capabilities{Sampling: strings.Fields(list)}), " "); got != want {
			t.Errorf("%q lacks %q, not %q", list, got, want)
		}
	}
	if got := capability.Missing(s, nil); got != nil {
		t.Errorf("an engine without capabilities lacks %v", got)
	}
}
