package stopstring

// pattern is the Knuth-Morris-Pratt automaton of one stop string. Its state is the length of the longest proper prefix
// of text that the input so far ends with.
type pattern struct {
	text   string
	border []int32 // border[n] is the length of the longest proper border of text[:n+1]
	state  int
}

func newPattern(text string) pattern {
	p := pattern{text: text, border: make([]int32, len(text))}
	for n, k := 1, 0; n < len(text); n++ {
		k = p.step(k, text[n])
		p.border[n] = int32(k)
	}
	return p
}

// step returns the state after state and b. Falling back is paid for by the steps that led there, so reading a text
// takes time linear in its length.
func (p *pattern) step(state int, b byte) int {
	for state > 0 && p.text[state] != b {
		state = int(p.border[state-1])
	}
	if p.text[state] == b {
		state++
	}
	return state
}

// next reads b and says whether text ends with it.
func (p *pattern) next(b byte) bool {
	state := p.step(p.state, b)
	if state == len(p.text) {
		p.state = 0 // the text ends here, so nobody asks for the overlap
		return true
	}
	p.state = state
	return false
}
