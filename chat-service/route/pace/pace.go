// Package pace bounds the streams that move to one worker at a time. They have their prompts and answers read again, which
// holds up the worker's other streams.
package pace

// The streams that may wait at a worker for their next token after a move: at most Streams, or more while they have at most Tokens
// together.
const (
	Streams = 8
	Tokens  = 2048
)

// Moves are the streams that have moved to a worker and have no token there yet.
type Moves struct{ Streams, Tokens int }

// Full reports whether a stream of this many tokens must wait for its turn. together is the limit on the tokens of all moving
// streams below which none has to wait.
func (m Moves) Full(tokens, together int) bool {
	return m.Streams >= Streams && m.Tokens+tokens > together
}

// Add returns the moves with further ones.
func (m Moves) Add(streams, tokens int) Moves { return Moves{m.Streams + streams, m.Tokens + tokens} }
