package sglang_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/seeingtest"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/sglang"
	"github.com/whence-dev/whence/llm-worker/engine/sglang/sglangtest"
)

func shown(limit *uint32) *workerv1.TokenRequest {
	return &workerv1.TokenRequest{
		Prompt: []uint32{10, seeingtest.Placeholder, 11}, Sampling: &llmv1.Sampling{MaxTokens: limit},
		Images: []*llmv1.Image{{Data: []byte(seeingtest.PNG), MediaType: seeingtest.MediaType}},
	}
}

// TestImagesGoBesideTheirPlaceholders: SGLang gets the images in data: URLs. If only the context limits
// the answer, SGLang sets its length, because only SGLang knows how much of the context images take.
func TestImagesGoBesideTheirPlaceholders(t *testing.T) {
	s := besidetest.Subject{Dialect: sglangtest.Seeing(seeingtest.Placeholder), New: func(o beside.Options) (besidetest.Engine, error) {
		o.Upstream = "http://" + o.Upstream
		return sglang.New(sglang.Options{Options: o}, &beside.Config{Vocab: besidetest.Vocab, EOS: []uint32{besidetest.EOS}})
	}}
	e, server := s.Start(t, besidetest.Count)
	if can := e.Upstream().Capabilities.GetImages(); can != llmv1.ImageInput_IMAGE_INPUT_PROMPT {
		t.Fatal(can)
	}
	for name, test := range map[string]struct {
		limit *uint32
		want  int
	}{
		"a limit":                     {proto.Uint32(3), 3},
		"none":                        {nil, sglangtest.Unlimited},
		"what chat-service fills in":  {proto.Uint32(besidetest.Context - 3), sglangtest.Unlimited},
		"more than the context holds": {proto.Uint32(besidetest.Context), sglangtest.Unlimited},
	} {
		t.Run(name, func(t *testing.T) {
			req := shown(test.limit)
			r := besidetest.Read(t.Context(), e, req, nil)
			if r.Err != nil || len(r.Tokens) != test.want || r.End.GetUsage().GetPromptTokens() != 2+sglangtest.ImageTokens {
				t.Fatal(r.Err, r.Tokens, r.End)
			}
			asked := server.Asked()[len(server.Asked())-1]
			if !slices.Equal(asked.Images, []string{seeingtest.DataURL}) || !slices.Equal(asked.Prompt, req.GetPrompt()) {
				t.Errorf("%+v", asked)
			}
			if req.GetImages() != nil {
				t.Error("the request keeps its images while it is answered")
			}
		})
	}
	// The answer of another worker is continued with the same images.
	req := shown(proto.Uint32(6))
	req.Prompt, req.Generated = append(req.Prompt, 12, 13), 2
	if r := besidetest.Read(t.Context(), e, req, nil); r.Err != nil || len(r.Tokens) != 4 || r.End.GetUsage().GetCompletionTokens() != 6 {
		t.Error(r.Err, r.Tokens, r.End)
	}
}
