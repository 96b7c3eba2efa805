package guide

// freeText matches any bytes up to and including the first occurrence of end, which is not empty. It
// is the automaton of Knuth, Morris and Pratt: in state n the last n bytes are the first n bytes of
// end, and no more of them are.
func freeText(end string) *symbol {
	states := make([]*symbol, len(end)+1)
	for n := range states {
		states[n] = choice()
	}
	states[len(end)] = sequence()
	after := make([][256]int, len(end)) // the state after each byte, by state
	fallback := 0                       // the state in which all bytes but the first lead to state n
	for n := range end {
		if n > 0 {
			after[n] = after[fallback]
			fallback = after[fallback][end[n]]
		}
		after[n][end[n]] = n + 1
		states[n].parts = branches(states, &after[n])
	}
	return states[0]
}

// branches returns the alternatives of a state: one for each state that may follow.
func branches(states []*symbol, after *[256]int) []*symbol {
	var parts []*symbol
	for to, next := range states {
		var ranges []byte
		for b, n := range after {
			if n == to {
				ranges = append(ranges, byte(b), byte(b))
			}
		}
		if len(ranges) > 0 {
			parts = append(parts, sequence(oneOfBytes(ranges...), next))
		}
	}
	return parts
}
