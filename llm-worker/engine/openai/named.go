package openai

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
)

// namedLogprobs are the log-probabilities of a chunk's tokens, which are written as ids, as vLLM does
// on request (return_tokens_as_token_ids).
type namedLogprobs struct {
	Tokens []string             `json:"tokens"`
	Likely []float32            `json:"token_logprobs"`
	Top    []map[string]float32 `json:"top_logprobs"` // the token itself may be one more
}

// positions returns the log-probabilities with ids as numbers.
func (l *namedLogprobs) positions() ([]likely.Position, error) {
	if l == nil {
		return nil, nil
	}
	if len(l.Likely) != len(l.Tokens) || len(l.Top) > 0 && len(l.Top) != len(l.Tokens) {
		return nil, fmt.Errorf("the server sent %d logprobs and %d lists of top tokens for %d tokens", len(l.Likely), len(l.Top), len(l.Tokens))
	}
	all := make([]likely.Position, len(l.Tokens))
	for i, name := range l.Tokens {
		id, err := tokenID(name)
		if err != nil {
			return nil, err
		}
		all[i].Token = likely.Token{ID: id, Logprob: l.Likely[i]}
		if len(l.Top) == 0 {
			continue
		}
		for name, logprob := range l.Top[i] {
			id, err := tokenID(name)
			if err != nil {
				return nil, err
			}
			all[i].Top = append(all[i].Top, likely.Token{ID: id, Logprob: logprob})
		}
	}
	return all, nil
}

// tokenID reads "token_id:5".
func tokenID(token string) (uint32, error) {
	digits, ok := strings.CutPrefix(token, "token_id:")
	if !ok {
		return 0, fmt.Errorf("%.32q is not a token id", token)
	}
	id, err := strconv.ParseUint(digits, 10, 32)
	return uint32(id), err
}
