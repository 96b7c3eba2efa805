package ledger

import streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"

// Tokens are the figures of a stream, as one hop has them. This is their only definition: the story of a stream (`whence why`,
// GET /v1/streams/{id}), the list of streams, the console and the metrics of a hop all derive from them, and docs/operations.md
// explains them to operators. For a whole stream, those of the first hop count.
//
// Every token is counted by exactly one message on its way up: the Delta or Tokens that brings its text, or the End (ChoiceEnd, TurnEnd)
// behind it. A token that ends the answer, a stop string, or a token without text is counted by the End. So Delivered of an answer that
// is complete equals the usage that its client is told (completion_tokens), on every hop, less what another chat-service had delivered
// before it.
type Tokens struct {
	// Prompt is the length of the prompt, as the worker that began the answer counts it. A stream with several prompts has the sum
	// of them; prompts that are shared by several choices count once. A move does not change it.
	Prompt uint32
	// Cached is how much of Prompt the engine that completed the answer found in its KV cache; nil until the answer is complete.
	Cached *uint32
	// Generated is how many tokens engines have generated for the answer, over all choices, turns and workers. What a worker is
	// given to resume from was generated before, and does not count again. A hop knows of the tokens that it received and of those
	// that the hop below reports in its trailers beyond these; what a hop had and did not pass on before it died is known to nobody.
	Generated uint32
	// Delivered is how many tokens the hop has passed on to its caller: written to the client, on api-service.
	Delivered uint32
}

// TokensOf returns the figures of a record.
func TokensOf(r *streamv1.Record) Tokens {
	return Tokens{Prompt: r.GetPromptTokens(), Cached: r.CachedTokens, Generated: r.GetTokensIn(), Delivered: r.GetTokensOut()}
}

// Wasted returns how many tokens were generated and not delivered.
func (t Tokens) Wasted() uint32 {
	if t.Generated < t.Delivered { // a read between the two counts of one message, while the stream runs
		return 0
	}
	return t.Generated - t.Delivered
}
