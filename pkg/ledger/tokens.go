package ledger

import streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"

// Tokens has the token counts of a stream on one hop. This is their only definition: the story of a
// stream (`whence why`, GET /v1/streams/{id}), the list of streams, the console and a hop's metrics
// all derive from them, and docs/reference/metrics.md explains them to operators. The counts of a whole
// stream are the counts of its first hop.
//
// Exactly one message on the way up counts a token: the Delta or Tokens with its text, or the End
// (ChoiceEnd, TurnEnd) after it. The End counts the token that ends the answer, stop strings, and
// tokens without text. So on every hop Delivered of a complete answer equals the usage that the
// client reads (completion_tokens), minus the tokens that another chat-service had delivered
// before.
type Tokens struct {
	// Prompt is the length of the prompt, as counted by the worker that began the answer. For a
	// stream with several prompts it is their sum; a prompt shared by several choices counts once.
	// For a conversation it is the sum over its turns, the open turn included. A move does not
	// change it. If the stream is stopped before a worker has admitted it, the prompts with which
	// workers were called at the time of the stop count, as chat-service has tokenised them.
	Prompt uint32
	// Cached is the number of tokens of Prompt that the engine that completed the answer found in
	// its KV cache. It is nil until an answer is complete, and if the engine does not say. For a conversation it is the sum over
	// its complete turns.
	Cached *uint32
	// Generated is the number of tokens that engines generated for the answer, over all choices,
	// turns and workers. The tokens from which a worker resumes are not counted again. A hop knows
	// the tokens that it received, and further tokens from the trailers of the hop below. Tokens
	// that a dead hop had not passed on are not counted.
	Generated uint32
	// Delivered is the number of tokens that the hop has passed on to its caller; api-service
	// writes them to the client.
	Delivered uint32
}

// TokensOf returns the token counts of a record.
func TokensOf(r *streamv1.Record) Tokens {
	return Tokens{Prompt: r.GetPromptTokens(), Cached: r.CachedTokens, Generated: r.GetTokensIn(), Delivered: r.GetTokensOut()}
}

// Wasted returns the number of tokens that were generated but not delivered.
func (t Tokens) Wasted() uint32 {
	if t.Generated < t.Delivered { // while the stream runs, a read may happen between the two counts of one message
		return 0
	}
	return t.Generated - t.Delivered
}
