package capability

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// A service ignores the fields that its release does not know. That is right for most fields, but some
// change the answer. So the callee names those of them that it knows, in Started, in TokenizeResponse and
// in Capabilities, and the caller refuses a request with another one.

// ChatFields returns the fields that req sets, and that chat-services of earlier releases ignore although
// they change the prompt.
func ChatFields(req *chatv1.ChatRequest) (set []string) {
	if req.GetNoGenerationPrompt() {
		set = append(set, "no_generation_prompt")
	}
	return append(set, continues(req)...)
}

// TokenizeFields is ChatFields for a TokenizeRequest.
func TokenizeFields(req *chatv1.TokenizeRequest) []string { return continues(req) }

func continues(req interface{ GetContinueMessage() bool }) []string {
	if req.GetContinueMessage() {
		return []string{"continue_message"}
	}
	return nil
}

// Unknown returns a field that is set and not known, or "".
func Unknown(set, known []string) string {
	for _, field := range set {
		if !slices.Contains(known, field) {
			return field
		}
	}
	return ""
}

// firstGuideFields are the fields of Guide and GuideForm that all workers know.
var firstGuideFields = []protoreflect.Name{"forms", "free_until", "before", "schema", "after"}

const freeFrom = "free_from"

// GuideFields returns the fields of Guide and GuideForm that workers of earlier releases ignore.
func GuideFields() (all []string) {
	for _, message := range []protoreflect.Message{(*llmv1.Guide)(nil).ProtoReflect(), (*llmv1.GuideForm)(nil).ProtoReflect()} {
		fields := message.Descriptor().Fields()
		for i := range fields.Len() {
			if name := fields.Get(i).Name(); !slices.Contains(firstGuideFields, name) {
				all = append(all, string(name))
			}
		}
	}
	return all
}

// guideFields returns the fields of GuideFields that a guide sets.
func guideFields(g *llmv1.Guide) (set []string) {
	add := func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(firstGuideFields, field.Name()) {
			set = append(set, string(field.Name()))
		}
		return true
	}
	g.ProtoReflect().Range(add)
	for _, form := range g.GetForms() {
		form.ProtoReflect().Range(add)
	}
	return set
}

// KnownGuide returns the guide that a worker gets: without a first part that the answer may leave out, if
// the worker would demand that part. A nil can, of a worker that reports nothing, counts as everything.
func KnownGuide(can *llmv1.Capabilities, g *llmv1.Guide) *llmv1.Guide {
	if can == nil || slices.Contains(can.GetGuideFields(), freeFrom) {
		return g
	}
	return Needed(g)
}
