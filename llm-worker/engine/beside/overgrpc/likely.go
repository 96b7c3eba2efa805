package overgrpc

import "github.com/whence-dev/whence/llm-worker/engine/beside/likely"

// logprobs is the common interface of both services' OutputLogProbs and TopLogProbs, whose fields
// have other names.
type (
	outputLogprobs interface {
		GetTokenIds() []uint32
		GetTokenLogprobs() []float32
	}
	topLogprobs interface {
		GetTokenIds() []uint32
		GetValues() []float32
	}
)

// Positions converts the log-probabilities of a message. Lists of unequal lengths are cut to the
// shortest; the queue that takes the result refuses what is too short.
func Positions[Top topLogprobs](output outputLogprobs, top []Top) []likely.Position {
	ids, values := output.GetTokenIds(), output.GetTokenLogprobs()
	all := make([]likely.Position, min(len(ids), len(values)))
	for i := range all {
		all[i].Token = likely.Token{ID: ids[i], Logprob: values[i]}
		if i >= len(top) {
			continue
		}
		ids, values := top[i].GetTokenIds(), top[i].GetValues()
		for j := range min(len(ids), len(values)) {
			all[i].Top = append(all[i].Top, likely.Token{ID: ids[j], Logprob: values[j]})
		}
	}
	return all
}
