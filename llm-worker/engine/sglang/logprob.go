package sglang

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
)

// A tokenLogprob is an array of a log-probability, a token id, and a text or null. SGLang writes null for a
// log-probability of -Inf, which JSON cannot say.
type tokenLogprob likely.Token

// UnmarshalJSON implements json.Unmarshaler.
func (t *tokenLogprob) UnmarshalJSON(b []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	if len(parts) < 2 {
		return fmt.Errorf("a log-probability has %d parts", len(parts))
	}
	t.Logprob = float32(math.Inf(-1)) // null leaves it
	if err := json.Unmarshal(parts[0], &t.Logprob); err != nil {
		return err
	}
	return json.Unmarshal(parts[1], &t.ID)
}

// positions returns the log-probabilities of the last n tokens. An event has those of the new tokens
// or, by SGLang's default, those of the whole answer so far. The queue that takes the result refuses
// what is too short.
func positions(output []tokenLogprob, top [][]tokenLogprob, n int) []likely.Position {
	output, top = output[max(0, len(output)-n):], top[max(0, len(top)-n):]
	all := make([]likely.Position, len(output))
	for i, t := range output {
		all[i].Token = likely.Token(t)
		if i < len(top) {
			for _, t := range top[i] {
				all[i].Top = append(all[i].Top, likely.Token(t))
			}
		}
	}
	return all
}
