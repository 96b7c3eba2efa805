package sglang_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
)

// TestNullIsAnImpossibleToken: null read as 0 would be the log-probability of a certain token.
func TestNullIsAnImpossibleToken(t *testing.T) {
	t.Parallel()
	s := overHTTP(false, false)
	e, _ := s.Start(t, func(a *besidetest.Answer) error {
		a.Send(besidetest.Message(`data: {"output_ids":[5],"meta_info":{"finish_reason":{"type":"length"},"completion_tokens":1,` +
			`"output_token_logprobs":[[null,5,null]],"output_top_logprobs":[[[null,6,null],[-0.5,7,null]]]}}` + "\n\ndata: [DONE]\n\n"))
		return nil
	})
	req := besidetest.Ask(1)
	req.Sampling.Logprobs = proto.Uint32(2)
	var got *workerv1.Tokens
	for out, err := range e.Generate(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		if out.GetTokens() != nil {
			got = out.GetTokens()
		}
	}
	if !slices.Equal(got.GetLogprobs(), []float32{-9999}) || !slices.Equal(got.GetTopIds(), []uint32{7, 6}) || !slices.Equal(got.GetTopLogprobs(), []float32{-0.5, -9999}) {
		t.Error(got)
	}
}
