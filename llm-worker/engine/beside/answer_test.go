package beside_test

import (
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// TestUsageDoesNotCountCachedTokensOfTheAnswer: when a server continues an answer, its cache may hold the
// beginning of the answer, which is not a part of the client's prompt.
func TestUsageDoesNotCountCachedTokensOfTheAnswer(t *testing.T) {
	for name, said := range map[string]beside.Usage{
		"counted by the server": {Prompt: 5, Completion: 1, Cached: new(uint32(4))},
		"counted by the engine": {Cached: new(uint32(4))},
	} {
		a := beside.NewAnswer(&workerv1.TokenRequest{Prompt: []uint32{1, 2, 3, 4, 5}, Generated: 2}, 100, nil)
		if _, err := a.Take([]uint32{6}); err != nil {
			t.Fatal(err)
		}
		_, end := a.End(llmv1.Finish_FINISH_LENGTH, said)
		if u := end.GetUsage(); u.GetPromptTokens() != 3 || u.GetCachedTokens() != 3 || u.GetCompletionTokens() != 3 {
			t.Errorf("%s: %v", name, u)
		}
	}
}

// TestImpossibleUsageIsNotCounted: tenants are charged for the usage of an answer, so a server that
// counts what cannot be is not believed.
func TestImpossibleUsageIsNotCounted(t *testing.T) {
	for name, c := range map[string]struct {
		limit  *uint32
		said   beside.Usage
		prompt uint32
		answer uint32
	}{
		"more than the limit":      {new(uint32(4)), beside.Usage{Prompt: 5, Completion: 6}, 5, 1},
		"the limit":                {new(uint32(4)), beside.Usage{Prompt: 5, Completion: 4}, 5, 4},
		"huge":                     {nil, beside.Usage{Prompt: 1<<32 - 1, Completion: 1<<32 - 1, Cached: new(uint32(1<<32 - 1))}, 5, 1},
		"more cached than read":    {nil, beside.Usage{Prompt: 9, Completion: 2, Cached: new(uint32(1 << 31))}, 9, 2},
		"tokens of images in both": {nil, beside.Usage{Prompt: 4000, Completion: 300}, 4000, 300},
	} {
		a := beside.NewAnswer(&workerv1.TokenRequest{Prompt: []uint32{1, 2, 3, 4, 5}, Sampling: &llmv1.Sampling{MaxTokens: c.limit}}, 100, nil)
		if _, err := a.Take([]uint32{6}); err != nil {
			t.Fatal(err)
		}
		_, end := a.End(llmv1.Finish_FINISH_LENGTH, c.said)
		u := end.GetUsage()
		if u.GetPromptTokens() != c.prompt || u.GetCompletionTokens() != c.answer || u.GetCachedTokens() > u.GetPromptTokens() {
			t.Errorf("%s: %v", name, u)
		}
	}
}

// FuzzAnswerCounts: whatever a server counts and sends, ids stay below the vocabulary, and no more is
// counted than can be.
func FuzzAnswerCounts(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint32(5), uint32(3), uint32(9), uint32(8))
	f.Add([]byte{0xff}, ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0))
	f.Fuzz(func(t *testing.T, ids []byte, prompt, completion, cached, limit uint32) {
		limit %= 1 << 20
		a := beside.NewAnswer(&workerv1.TokenRequest{Prompt: []uint32{1, 2}, Sampling: &llmv1.Sampling{MaxTokens: &limit}}, 200, []uint32{3})
		a.Found(&cached)
		for _, id := range ids {
			some, err := a.Take([]uint32{uint32(id)})
			if err != nil {
				return
			}
			if id >= 200 || limit > 0 && a.Came() > int(limit) || len(some) > 2 {
				t.Fatalf("took %d of %d", id, a.Came())
			}
		}
		_, end := a.End(llmv1.Finish_FINISH_STOP, beside.Usage{Prompt: prompt, Completion: completion, Cached: new(cached)})
		u := end.GetUsage()
		if u.GetPromptTokens() > 1<<24 || u.GetCompletionTokens() > 1<<24+1 || u.GetCachedTokens() > u.GetPromptTokens() {
			t.Errorf("%v", u)
		}
	})
}
