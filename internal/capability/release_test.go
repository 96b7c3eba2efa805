package capability_test

import (
	"slices"
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/capability"
)

// TestGuideOfALaterReleaseIsMissing: a worker of an earlier release enforces all guides that it knows, and
// ignores the fields of others.
func TestGuideOfALaterReleaseIsMissing(t *testing.T) {
	forms := []*llmv1.GuideForm{{Schema: "{}", After: "."}}
	earlier := &llmv1.Capabilities{Sampling: []string{"guide"}, Guides: llmv1.GuideSupport_GUIDE_SUPPORT_FORMS}
	ours := &llmv1.Capabilities{Sampling: []string{"guide"}, Guides: llmv1.GuideSupport_GUIDE_SUPPORT_FORMS, GuideFields: capability.GuideFields()}
	for name, c := range map[string]struct {
		guide *llmv1.Guide
		knows bool         // the earlier worker
		gets  *llmv1.Guide // which it gets; nil means guide
	}{
		"forms":                 {guide: &llmv1.Guide{Forms: forms}, knows: true},
		"a first part":          {guide: &llmv1.Guide{Forms: forms, FreeUntil: "</think>"}, knows: true},
		"an optional part":      {guide: &llmv1.Guide{Forms: forms, FreeFrom: "<think>", FreeUntil: "</think>", FreeGap: "\n"}, knows: true, gets: &llmv1.Guide{Forms: forms}},
		"a gap":                 {guide: &llmv1.Guide{Forms: forms, FreeUntil: "</think>", FreeGap: "\n"}},
		"an expression":         {guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Pattern: "[0-9]+"}}}},
		"parts":                 {guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Before: "<a>", Parts: []*llmv1.GuidePart{{After: "."}}}}}},
		"parts in another form": {guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{forms[0], {Parts: []*llmv1.GuidePart{{After: "."}}}}}},
	} {
		s := &llmv1.Sampling{Guide: c.guide}
		if missing := capability.Missing(s, earlier); c.knows != (len(missing) == 0) {
			t.Errorf("%s: an earlier worker lacks %v", name, missing)
		}
		if missing := capability.Missing(s, ours); len(missing) > 0 {
			t.Errorf("%s: our worker lacks %v", name, missing)
		}
		if got := capability.KnownGuide(ours, c.guide); got != c.guide {
			t.Errorf("%s: our worker gets %v", name, got)
		}
		got := capability.KnownGuide(earlier, c.guide)
		if c.gets == nil && got != c.guide || c.gets != nil && (got.GetFreeUntil()+got.GetFreeFrom()+got.GetFreeGap() != "" || !slices.Equal(got.GetForms(), c.gets.GetForms())) {
			t.Errorf("%s: an earlier worker gets %v", name, got)
		}
	}
}

func TestFieldsThatChangeThePrompt(t *testing.T) {
	req := &chatv1.ChatRequest{Model: "m", NoGenerationPrompt: true, ContinueMessage: true}
	if got := capability.ChatFields(req); !slices.Equal(got, []string{"no_generation_prompt", "continue_message"}) {
		t.Error(got)
	}
	if got := capability.ChatFields(&chatv1.ChatRequest{Model: "m"}); got != nil {
		t.Error(got)
	}
	if got := capability.TokenizeFields(&chatv1.TokenizeRequest{ContinueMessage: true}); !slices.Equal(got, []string{"continue_message"}) {
		t.Error(got)
	}
	for _, c := range []struct {
		set, known []string
		want       string
	}{{nil, nil, ""}, {[]string{"a"}, []string{"a", "b"}, ""}, {[]string{"a", "c"}, []string{"a"}, "c"}, {[]string{"a"}, nil, "a"}} {
		if got := capability.Unknown(c.set, c.known); got != c.want {
			t.Errorf("of %v, %v are known, and %q is not", c.set, c.known, got)
		}
	}
}
