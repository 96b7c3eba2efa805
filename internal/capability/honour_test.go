package capability_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/capability"
)

func TestGuideThatAnEngineDoesNotEnforceIsMissing(t *testing.T) {
	schema := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: "{}"}}}
	around := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: "{}", After: "."}}}
	two := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: "{}"}, {Before: "no"}}}
	free := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: "{}"}}, FreeUntil: "</think>"}
	may := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: "{}"}}, FreeFrom: "<think>", FreeUntil: "</think>"} // may be left out
	parts := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Parts: []*llmv1.GuidePart{{After: "."}}}}}
	for support, enforced := range map[llmv1.GuideSupport][]*llmv1.Guide{
		llmv1.GuideSupport_GUIDE_SUPPORT_UNSPECIFIED: {schema, around, two, may},
		llmv1.GuideSupport_GUIDE_SUPPORT_SCHEMA:      {schema, may},
		llmv1.GuideSupport_GUIDE_SUPPORT_FORMS:       {schema, around, two, free, may, parts},
	} {
		can := &llmv1.Capabilities{Sampling: []string{"guide"}, Guides: support, GuideFields: capability.GuideFields()}
		for _, g := range []*llmv1.Guide{schema, around, two, free, may, parts} {
			missing := capability.Missing(&llmv1.Sampling{Guide: g}, can)
			if slices.Contains(enforced, g) != (len(missing) == 0) {
				t.Errorf("%s, %v: missing %v", support, g, missing)
			}
		}
	}
}

func TestLogprobsAfterSamplingAreMissingWhereTheyDiffer(t *testing.T) {
	can := &llmv1.Capabilities{SampledLogprobs: true, Sampling: strings.Fields(
		"temperature top_p min_p repetition_penalty frequency_penalty presence_penalty logit_bias min_tokens logprobs guide")}
	for name, test := range map[string]struct {
		s       *llmv1.Sampling
		missing bool
	}{
		"nothing":            {&llmv1.Sampling{}, false},
		"greedy":             {&llmv1.Sampling{Temperature: proto.Float32(0)}, false},
		"temperature 1":      {&llmv1.Sampling{Temperature: proto.Float32(1), TopP: proto.Float32(0.5), MinP: proto.Float32(0.1)}, false},
		"neutral penalties":  {&llmv1.Sampling{RepetitionPenalty: proto.Float32(1), FrequencyPenalty: proto.Float32(0)}, false},
		"temperature":        {&llmv1.Sampling{Temperature: proto.Float32(0.7)}, true},
		"repetition penalty": {&llmv1.Sampling{RepetitionPenalty: proto.Float32(1.1)}, true},
		"frequency penalty":  {&llmv1.Sampling{FrequencyPenalty: proto.Float32(-1)}, true},
		"presence penalty":   {&llmv1.Sampling{PresencePenalty: proto.Float32(1)}, true},
		"bias":               {&llmv1.Sampling{LogitBias: map[uint32]float32{1: 1}}, true},
		"min_tokens":         {&llmv1.Sampling{MinTokens: proto.Uint32(2)}, true},
		"guide":              {&llmv1.Sampling{Guide: &llmv1.Guide{}}, true},
	} {
		test.s.Logprobs = proto.Uint32(1)
		got := capability.Missing(test.s, can)
		if slices.Contains(got, "logprobs") != test.missing {
			t.Errorf("%s: missing %v", name, got)
		}
		if test.missing && !strings.Contains(capability.Lack(can, "logprobs"), "after temperature") {
			t.Error(capability.Lack(can, "logprobs"))
		}
	}
	if got := capability.Lack(&llmv1.Capabilities{Upstream: "vllm"}, "guide"); !strings.Contains(got, "enable_in_reasoning") {
		t.Error(got)
	}
	if got := capability.Lack(&llmv1.Capabilities{}, "logprobs"); got != "would ignore logprobs" {
		t.Error(got)
	}
}
