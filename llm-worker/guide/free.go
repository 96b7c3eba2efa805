package guide

import "github.com/whence-dev/whence/llm-worker/guide/grammar"

// freeText matches any bytes up to and including the first occurrence of end, which is not empty. It
// is the automaton of Knuth, Morris and Pratt: in state n the last n bytes are the first n bytes of
// end, and no more of them are.
func freeText(end string) *grammar.DFA {
	next := make([][256]uint16, len(end)+2) // the dead state, and state n at 1+n
	fallback := 0                           // the state in which all bytes but the first lead to state n
	for n := range len(end) {
		if n == 0 {
			for b := range 256 {
				next[1][b] = 1
			}
		} else {
			next[1+n] = next[1+fallback]
			fallback = int(next[1+fallback][end[n]]) - 1
		}
		next[1+n][end[n]] = uint16(1 + n + 1) //nolint:gosec // end is short
	}
	accept := make([]bool, len(next))
	accept[len(end)+1] = true
	d := grammar.NewDFA(next, accept)
	d.After.Add(0, 255) // its last state has no transitions
	return d
}
