// Package pace limits the number of streams that move to one worker at a time. The worker must read
// their prompts and answers again, which holds up its other streams.
package pace

import "time"

// The limits on the streams that wait at a worker for their first token after a move: Streams
// streams, or more if they have at most Tokens tokens together. As long as first tokens come within
// Prompt, the limit on tokens grows with each of them by the stream's tokens, up to MostTokens. A
// later first token takes the limit back to Tokens. With more than MostTokens, the first tokens of
// new requests are late (scripts/trust --only "worker killed").
const (
	Streams    = 8
	Tokens     = 2048
	MostTokens = 2 * Tokens
	Prompt     = 100 * time.Millisecond
)

// Moves counts the streams that have moved to a worker and have no token there yet, and their
// prompt tokens.
type Moves struct {
	Streams, Tokens int

	grown int // the limit on tokens is this much more than at first
}

// Full reports whether a stream of this many tokens must wait for its turn. More than Streams
// streams may move together as long as their tokens do not exceed the limit together, which is
// atFirst tokens at first.
func (m Moves) Full(tokens, atFirst int) bool {
	return m.Streams >= Streams && m.Tokens+tokens > atFirst+m.grown
}

// Add returns the moves plus a stream of this many tokens.
func (m Moves) Add(tokens int) Moves {
	m.Streams++
	m.Tokens += tokens
	return m
}

// Done returns the moves without a stream of this many tokens, which has begun to answer after a
// time, or has left the worker before.
func (m Moves) Done(tokens int, begun bool, after time.Duration) Moves {
	m.Streams--
	m.Tokens -= tokens
	switch {
	case !begun:
	case after > Prompt:
		m.grown = 0
	default:
		m.grown = min(m.grown+tokens, MostTokens-Tokens)
	}
	return m
}
