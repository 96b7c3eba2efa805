// Package stopstring ends a streamed text at the first of its stop strings, without showing any part of that string.
//
// The contract is that of cutting the whole text: let e be the first position at which any stop string ends. The answer
// is the text before the start of the stop string that ends there, of the longest one if several do, and nothing after
// it. Without such a position the answer is the whole text. However the text is cut into pieces, what a Matcher emits,
// joined, is exactly that answer, and each character is emitted as soon as it can no longer be part of a stop string.
//
// The rule is about ends because a reader of a stream can apply it at once. The other usual rule, the leftmost start,
// would have to wait: with the stop strings "abcd" and "bc", the text "abc" is over here, while the leftmost start would
// hold "abc" back until the next character. For stop strings of which none lies within another the rules agree.
//
// Text and stop strings are valid UTF-8, and then no piece that is emitted splits a character: the boundary between what
// is emitted and what is held back is where a stop string may have begun, and stop strings begin with a whole character.
// Other bytes do no harm, but boundaries may then fall anywhere.
package stopstring

// A Matcher reads one text. It is not safe for concurrent use.
//
// There is one Knuth-Morris-Pratt automaton for each stop string rather than one Aho-Corasick automaton for all: with at
// most 16 of them it is as fast in practice, builds in linear time and space, and fits on a page.
type Matcher struct {
	stops   []pattern
	first   [256]bool // bytes with which a stop string begins
	held    tail
	matched string
	done    bool
}

// New returns a Matcher for stops, which the caller has checked: few, and none empty. An empty one would end every text
// before it began and is ignored.
func New(stops []string) *Matcher {
	m := &Matcher{}
	for _, stop := range stops {
		if stop == "" {
			continue
		}
		m.stops = append(m.stops, newPattern(stop))
		m.first[stop[0]] = true
	}
	return m
}

// Next takes the next piece of the text and returns what may be shown now. done says that the text has ended at the stop
// string matched; every later Next emits nothing and says so again. Without stop strings the piece comes back as it is.
func (m *Matcher) Next(piece string) (emit, matched string, done bool) {
	if len(m.stops) == 0 {
		return piece, "", false
	}
	if m.done {
		return "", m.matched, true
	}
	pending := m.held.len() // the length of the longest partial match
	for i := range len(piece) {
		if pending == 0 && !m.first[piece[i]] {
			continue
		}
		pending = 0
		for s := range m.stops {
			p := &m.stops[s]
			if p.next(piece[i]) && len(p.text) > len(m.matched) {
				m.matched = p.text
			}
			pending = max(pending, p.state)
		}
		if m.matched != "" {
			m.done = true
			emit = m.held.cut(piece[:i+1], len(m.matched))
			m.held = tail{}
			return emit, m.matched, true
		}
	}
	return m.held.cut(piece, pending), "", false
}

// Flush returns what is held back once the text is over. After a match that is nothing.
func (m *Matcher) Flush() string {
	rest := m.held.cut("", 0)
	m.held = tail{}
	for s := range m.stops {
		m.stops[s].state = 0
	}
	return rest
}
