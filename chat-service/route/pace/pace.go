// Package pace limits the number of streams that move to one worker at a time. The worker must read
// their prompts and answers again, which holds up its other streams.
package pace

// The limits on the streams that wait at a worker for their first token after a move: Streams
// streams, or more if they have at most Tokens tokens together.
const (
	Streams = 8
	Tokens  = 2048
)

// Moves counts the streams that have moved to a worker and have no token there yet, and their
// prompt tokens.
type Moves struct{ Streams, Tokens int }

// Full reports whether a stream of this many tokens must wait for its turn. More than Streams
// streams may move together as long as their tokens do not exceed the limit together.
func (m Moves) Full(tokens, together int) bool {
	return m.Streams >= Streams && m.Tokens+tokens > together
}

// Add returns the moves plus streams and tokens, which may be negative.
func (m Moves) Add(streams, tokens int) Moves { return Moves{m.Streams + streams, m.Tokens + tokens} }
