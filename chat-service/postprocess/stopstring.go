package postprocess

// A StopMatcher ends a streamed text at the first of its stop strings, and emits no part of that
// string. It processes one text, and is not safe for concurrent use.
//
// It uses a Knuth-Morris-Pratt automaton per stop string instead of one Aho-Corasick automaton: for
// at most 16 stop strings this is as fast in practice, is built in linear time and space, and fits
// on a page.
//
// The contract is defined on the whole text. Let e be the first position at which any stop string
// ends. The answer is the text before the start of the stop string that ends at e, or of the
// longest one if several end there. If there is no such position, the answer is the whole text.
// Whatever the pieces of the text are, the joined output of a StopMatcher is exactly this answer,
// and each character is emitted as soon as it can no longer be part of a stop string.
//
// The rule uses ends because a stream can apply it immediately. The other common rule, the leftmost
// start, would have to wait: with the stop strings "abcd" and "bc", the text "abc" is over here,
// while the leftmost start would hold "abc" back until the next character. The rules agree if no
// stop string lies within another.
//
// If text and stop strings are valid UTF-8, no emitted piece splits a character: the boundary
// between emitted and held-back text is the possible start of a stop string, which is a whole
// character. With other bytes boundaries may be anywhere, but nothing else breaks.
type StopMatcher struct {
	stops   []stopPattern
	first   [256]bool // first bytes of the stop strings
	held    textTail
	matched string
	done    bool
}

// NewStopMatcher returns a StopMatcher for stops. The caller must bound their number. Empty stop
// strings are ignored, because they would end every text at its beginning.
func NewStopMatcher(stops []string) *StopMatcher {
	m := &StopMatcher{}
	for _, stop := range stops {
		if stop == "" {
			continue
		}
		m.stops = append(m.stops, newStopPattern(stop))
		m.first[stop[0]] = true
	}
	return m
}

// Next takes the next piece of the text and returns the text that is final. done means that the
// text has ended at the stop string matched; every later Next emits nothing and returns the same.
// Without stop strings Next returns the piece.
func (m *StopMatcher) Next(piece string) (emit, matched string, done bool) {
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
			m.held = textTail{}
			return emit, m.matched, true
		}
	}
	return m.held.cut(piece, pending), "", false
}

// Flush returns the held-back text at the end of the text. After a match it returns nothing.
func (m *StopMatcher) Flush() string {
	rest := m.held.cut("", 0)
	m.held = textTail{}
	for s := range m.stops {
		m.stops[s].state = 0
	}
	return rest
}
