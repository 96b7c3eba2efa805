package guide

import "math"

// A Matcher follows one answer. It is not safe for concurrent use.
type Matcher struct {
	vocabulary *Vocabulary
	grammar    *grammar
	state      *state
	open       []bool // scratch: whether a token may come
}

// A mask is the tokens that a state allows.
type mask struct {
	tokens []allowed
	need   int // the most of any of them
}

// allowed is a token, and how many bytes an answer needs behind it at the least.
type allowed struct {
	id   uint32
	need int32
}

// maxStates bounds the states that a matcher keeps; at more it forgets them all, and makes those anew that it meets.
const maxStates = 1 << 14

// Matcher returns a matcher at the beginning of an answer.
func (g *Guide) Matcher() *Matcher {
	gr := newGrammar()
	return &Matcher{vocabulary: g.vocabulary, grammar: gr, state: gr.state(gr.push(g.root, nil))}
}

// Over reports whether the answer is whole, and nothing can be added to it.
func (m *Matcher) Over() bool { return m.state.done && len(m.state.tops) == 0 }

// Done reports whether the answer is whole.
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
	if m.state = s; len(m.grammar.states) > maxStates {
		m.forget()
	}
	return nil
}

// forget makes room. The stacks of the state are all that is needed of what was.
func (m *Matcher) forget() {
	stacks := m.state.tops
	if m.state.done {
		stacks = append([]*frame{nil}, stacks...)
	}
	m.grammar = newGrammar()
	m.state = m.grammar.state(stacks...)
}

// Apply makes all tokens impossible that must not come next, where room tokens can still come. ends are those that end an answer,
// which they may do where it is whole.
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
		limit = room - 1 // there is a token for every byte, so what needs no more can still be finished
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

// walk finds the tokens that the state allows.
func (m *Matcher) walk() *mask {
	all := &mask{}
	v := m.vocabulary
	var down func(at int32, s *state)
	down = func(at int32, s *state) {
		for child := v.nodes[at].child; child != 0; child = v.nodes[child].sibling {
			n := &v.nodes[child]
			next := m.grammar.step(s, n.b)
			if next == nil {
				continue
			}
			for _, id := range n.tokens {
				all.tokens = append(all.tokens, allowed{id, int32(next.need)})
				all.need = max(all.need, next.need)
			}
			down(child, next)
		}
	}
	down(0, m.state)
	return all
}
