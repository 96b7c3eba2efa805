package ledger

import streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"

// Tokens are the figures of a stream on one hop. This is their only definition: the story of a stream (`whence why`,
// GET /v1/streams/{id}), the list of streams, the console and a hop's metrics all derive from them, and
// docs/operations.md explains them to operators. The figures of a whole stream are those of its first hop.
//
// Exactly one message on the way up counts a token: the Delta or Tokens with its text, or the End (ChoiceEnd,
// TurnEnd) behind it. The End counts the token that ends the answer, stop strings, and tokens without text. So on
// every hop Delivered of a complete answer equals the usage that the client reads (completion_tokens), less the
// tokens that another chat-service had delivered before.
type Tokens struct {
	// Prompt is the length of the prompt, as the worker that began the answer counts it. A stream with several prompts has the sum
	// of them; prompts that are shared by several choices count once. A move does not change it.
	Prompt uint32
	// Cached is how much of Prompt the engine that completed the answer found in its KV cache; nil until the answer is complete.
	Cached *uint32
	// Generated is the number of tokens that engines generated for the answer, over all choices, turns and workers.
	// The tokens that a worker resumes from are not counted again. A hop knows the tokens that it received, and
	// further ones from the trailers of the hop below; tokens that a dead hop had not passed on are lost to the
	// count.
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
