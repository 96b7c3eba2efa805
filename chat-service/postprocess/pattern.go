package postprocess

// A stopPattern is the Knuth-Morris-Pratt automaton of one stop string. Its state is the length of the
// longest proper prefix of text with which the input so far ends.
type stopPattern struct {
	text   string
	border []int32 // border[n] is the length of the longest proper border of text[:n+1]
	state  int
}

func newStopPattern(text string) stopPattern {
	p := stopPattern{text: text, border: make([]int32, len(text))}
	for n, k := 1, 0; n < len(text); n++ {
		k = p.step(k, text[n])
		p.border[n] = int32(k)
	}
	return p
}

// step returns the state after state and b. The total cost of fallbacks is bounded by the number of
// steps, so reading takes linear time.
func (p *stopPattern) step(state int, b byte) int {
	for state > 0 && p.text[state] != b {
		state = int(p.border[state-1])
	}
	if p.text[state] == b {
		state++
	}
	return state
}

// next reads b and reports whether the input now ends with text.
func (p *stopPattern) next(b byte) bool {
	state := p.step(p.state, b)
	if state == len(p.text) {
		p.state = 0 // the input ends here, so the overlap does not matter
		return true
	}
	p.state = state
	return false
}
