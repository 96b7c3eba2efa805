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
		"counted by the server": {Prompt: 5, Completion: 1, Cached: 4},
		"counted by the engine": {Cached: 4},
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
