package ollama

import (
	"testing"

	"github.com/whence-dev/whence/internal/jsonscan/jsonscantest"
)

// FuzzLine: a line is read as encoding/json reads it.
func FuzzLine(f *testing.F) {
	jsonscantest.Fuzz(f, (*line).scan,
		`{"model":"m","created_at":"2026-11-29T03:00:00Z","response":" the","done":false}`,
		`{"model":"m","response":"\ud83d\ude80","done":true,"done_reason":"stop","context":[1,2],"total_duration":5,"prompt_eval_count":3,"eval_count":4}`,
		`{"response":"x","done":false,"logprobs":[{"token":"x","logprob":-0.5,"top_logprobs":[]}]}`,
		`{"error":"no"}`,
	)
}
