package guide

import "math"

// A Matcher follows one answer. It is not safe for concurrent use.
type Matcher struct {
	vocabulary *Vocabulary
	grammar    *grammar
	state      *state
	open       []bool // scratch: whether a token is allowed
}

// A mask is the set of tokens that a state allows.
type mask struct {
	tokens []allowedToken
	need   int // the maximum need of any of them
}

// An allowedToken is a token, and the minimum number of bytes that the answer needs after it.
type allowedToken struct {
	id   uint32
	need int32
}

// maxStates and maxFrames bound a matcher's caches. Above them the matcher clears the caches and
// builds states again as it meets them.
const (
	maxStates = 1 << 14
	maxFrames = 1 << 16
)

// Matcher returns a matcher at the beginning of an answer.
func (g *Guide) Matcher() *Matcher {
	gr := newGrammar()
	return &Matcher{vocabulary: g.vocabulary, grammar: gr, state: gr.state(gr.push(g.root, nil))}
}

// Over reports whether the answer is complete and nothing can be added to it.
func (m *Matcher) Over() bool { return m.state.done && len(m.state.tops) == 0 }

// Done reports whether the answer is complete.
func (m *Matcher) Done() bool { return m.state.done }

// Advance takes the next token of the answer.
func (m *Matcher) Advance(token uint32) error {
	spelled, s := m.vocabulary.spelled, m.state
	if int64(token) >= int64(len(spelled)) || spelled[token] == "" {
		return errDead(token)
	}
	for i := range len(spelled[token]) {
		if s = m.grammar.step(s, spelled[token][i]); s == nil {
			return errDead(token)
		}
	}
	if m.state = s; len(m.grammar.states) > maxStates || len(m.grammar.frames) > maxFrames {
		m.forget()
	}
	return nil
}

// forget clears the caches. Only the stacks of the current state are kept.
func (m *Matcher) forget() {
	stacks := m.state.tops
	if m.state.done {
		stacks = append([]*frame{nil}, stacks...)
	}
	m.grammar = newGrammar()
	m.state = m.grammar.state(stacks...)
}

// Apply makes the forbidden tokens impossible. room is the number of tokens that the answer may
// still have. The tokens in ends end an answer, and are allowed only where the answer is complete.
func (m *Matcher) Apply(logits []float32, room int, ends []uint32) {
	if m.open == nil {
		m.open = make([]bool, len(logits))
	}
	clear(m.open)
	if m.state.mask == nil {
		m.state.mask = m.walk()
	}
	may := m.state.mask
	limit := may.need
	if limit >= room && m.state.need <= room {
		// There is a token for every byte, so an answer that needs no more bytes than that can
		// still be finished.
		limit = room - 1
	}
	for _, a := range may.tokens {
		if int(a.need) <= limit {
			m.allow(a.id, true)
		}
	}
	for _, id := range ends {
		m.allow(id, m.state.done)
	}
	for i := range logits {
		if !m.open[i] {
			logits[i] = float32(math.Inf(-1))
		}
	}
}

func (m *Matcher) allow(id uint32, may bool) {
	if int64(id) < int64(len(m.open)) {
		m.open[id] = may
	}
}

// maxLooks bounds the cost of a walk, in stacks examined per node of the vocabulary: a string has
// ten. If a state has more stacks than this allows, the walk stops early, and the deeper tokens are
// not allowed.
const maxLooks = 32

// walk finds the tokens that the state allows, the shortest first. One-byte tokens are found at any
// cost, so that there is always an allowed token.
func (m *Matcher) walk() *mask {
	type place struct {
		at int32
		s  *state
	}
	all, v := &mask{}, m.vocabulary
	looks := maxLooks * len(v.nodes)
	for queue := []place{{0, m.state}}; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		for child := v.nodes[from.at].child; child != 0; child = v.nodes[child].sibling {
			if looks -= len(from.s.tops); looks < 0 && from.at != 0 {
				return all
			}
			n := &v.nodes[child]
			next := m.grammar.step(from.s, n.b)
			if next == nil {
				continue
			}
			for _, id := range n.tokens {
				all.tokens = append(all.tokens, allowedToken{id, int32(next.need)})
				all.need = max(all.need, next.need)
			}
			queue = append(queue, place{child, next})
		}
	}
	return all
}
