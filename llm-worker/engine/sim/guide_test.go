package sim_test

import (
	"encoding/json"
	"io/fs"
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/engine/sim"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// TestGuidedAnswersFollowTheirGuide: answers by lot are whole values of the schema, of about the
// average length, and a moved answer continues in the same way.
func TestGuidedAnswersFollowTheirGuide(t *testing.T) {
	data, err := fs.ReadFile(whencetiny.FS(), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	const schema = `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"array","items":{"type":"integer"}},"deep":{"type":"boolean"}},"required":["city","days"],"additionalProperties":false}`
	e := run(t, sim.Options{Speed: 1e12, Answer: 40})
	guided := func(seed uint64, answered ...uint32) *workerv1.TokenRequest {
		return &workerv1.TokenRequest{
			Prompt: append([]uint32{5, 6, 7}, answered...), Generated: uint32(len(answered)),
			Sampling: &llmv1.Sampling{Seed: &seed, Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: schema}}}},
		}
	}
	for seed := range uint64(20) {
		ids, _, _, err := e.read(t.Context(), guided(seed))
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			City *string
			Days []int64
		}
		if err := json.Unmarshal([]byte(tok.Decode(ids, true)), &v); err != nil || v.City == nil || v.Days == nil {
			t.Errorf("%q: %v", tok.Decode(ids, true), err)
		}
		if len(ids) > 120 {
			t.Errorf("the answer has %d tokens, and answers have 40 on average", len(ids))
		}
		half := len(ids) / 2
		if rest, _, _, err := e.read(t.Context(), guided(seed, ids[:half]...)); err != nil || !slices.Equal(rest, ids[half:]) {
			t.Errorf("the moved answer continues with %q instead of %q", tok.Decode(rest, true), tok.Decode(ids[half:], true))
		}
	}
}
