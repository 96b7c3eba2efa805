package capability

import (
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// The fields of Sampling that an engine may honour in part.
const (
	guide    = "guide"
	logprobs = "logprobs"
)

// honours reports whether an engine honours a listed field as s sets it.
func honours(can *llmv1.Capabilities, s *llmv1.Sampling, field string) bool {
	switch field {
	case guide:
		g := KnownGuide(can, s.GetGuide())
		return Unknown(guideFields(g), can.GetGuideFields()) == "" && enforces(can.GetGuides(), g)
	case logprobs:
		return !can.GetSampledLogprobs() || !changesProbabilities(s)
	default:
		return true
	}
}

// enforces reports whether an engine enforces a guide.
func enforces(support llmv1.GuideSupport, g *llmv1.Guide) bool {
	switch support {
	case llmv1.GuideSupport_GUIDE_SUPPORT_FORMS:
		return true
	case llmv1.GuideSupport_GUIDE_SUPPORT_SCHEMA:
		_, alone := LoneSchema(Needed(g))
		return alone
	default:
		parts := slices.ContainsFunc(g.GetForms(), func(f *llmv1.GuideForm) bool { return len(f.GetParts()) > 0 })
		return Needed(g).GetFreeUntil() == "" && !parts
	}
}

// Needed returns the guide without a first part that an engine may leave out.
func Needed(g *llmv1.Guide) *llmv1.Guide {
	if g.GetFreeFrom() == "" {
		return g
	}
	return &llmv1.Guide{Forms: g.GetForms()}
}

// LoneSchema returns the schema of a guide that is one schema without text around it.
func LoneSchema(g *llmv1.Guide) (schema string, ok bool) {
	if len(g.GetForms()) != 1 || g.GetFreeUntil() != "" {
		return "", false
	}
	form := g.GetForms()[0]
	return form.GetSchema(), form.GetSchema() != "" && form.GetBefore() == "" && form.GetAfter() == "" && len(form.GetParts()) == 0
}

// changesProbabilities reports whether a field of s changes the probabilities of tokens. Fields that
// only drop unlikely tokens, such as top_p, do not count: servers compute log-probabilities before.
func changesProbabilities(s *llmv1.Sampling) bool {
	temperature := s.Temperature != nil && *s.Temperature != 0 && *s.Temperature != 1
	penalties := s.GetFrequencyPenalty() != 0 || s.GetPresencePenalty() != 0 || s.RepetitionPenalty != nil && *s.RepetitionPenalty != 1
	return temperature || penalties || len(s.GetLogitBias()) > 0 || s.GetMinTokens() > 0 || s.GetGuide() != nil
}

// Lack returns what an engine does with a field that Missing returned, for an error about the engine.
func Lack(can *llmv1.Capabilities, field string) string {
	for _, listed := range can.GetSampling() {
		switch {
		case listed != field:
		case field == guide:
			return "supports only guides that are one schema"
		case field == logprobs:
			return "computes log-probabilities after temperature, penalties, biases and guides, so the request must leave those alone to get the model's own"
		}
	}
	if field == guide && can.GetUpstream() == "vllm" {
		return `does not enforce guides; if it has a reasoning parser, --structured-outputs-config '{"enable_in_reasoning":true}' makes it`
	}
	return "would ignore " + field
}
