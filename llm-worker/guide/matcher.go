package guide

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// A Matcher follows one answer. It is not safe for concurrent use.
type Matcher struct {
	guide      *Guide
	vocabulary *Vocabulary
	automaton  *grammar.Automaton
	state      *grammar.State
	open       []uint64 // scratch: the allowed tokens

	// Caches; held is their size in bytes.
	masks  map[*grammar.State]*mask
	tables tables // those that the guide does not have
	held   int
}

// maxHeld bounds a matcher's caches of masks and tables. Above it, or above the bounds of the
// automaton, the matcher clears its caches and builds them again as it needs them.
const maxHeld = 2 << 20

// Matcher returns a matcher at the beginning of an answer.
func (g *Guide) Matcher() *Matcher {
	m := &Matcher{guide: g, vocabulary: g.vocabulary, masks: map[*grammar.State]*mask{}, tables: tables{}}
	m.automaton, m.state = grammar.New(g.root)
	return m
}

// Over reports whether the answer is complete and nothing can be added to it.
func (m *Matcher) Over() bool { return m.state.Done() && m.state.Stacks() == 0 }

// Done reports whether the answer is complete.
func (m *Matcher) Done() bool { return m.state.Done() }

// errDead is the error of a Matcher for an answer that does not follow its guide.
func errDead(token uint32) error { return fmt.Errorf("guide: token %d is not allowed here", token) }

// Need returns the minimum number of bytes that the answer still needs.
func (m *Matcher) Need() int { return m.state.Need() }

// Advance takes the next token of the answer.
func (m *Matcher) Advance(token uint32) error {
	spelled, s := m.vocabulary.spelled, m.state
	if int64(token) >= int64(len(spelled)) || spelled[token] == "" {
		return errDead(token)
	}
	for i := range len(spelled[token]) {
		if s = m.automaton.Step(s, spelled[token][i]); s == nil {
			return errDead(token)
		}
	}
	if m.state = s; m.automaton.Large() || m.held > maxHeld {
		m.forget()
	}
	return nil
}

// forget clears the caches.
func (m *Matcher) forget() {
	m.automaton, m.state = m.automaton.Restart(m.state)
	clear(m.masks)
	clear(m.tables)
	m.held = 0
}

// Apply makes the forbidden tokens impossible. room is the number of tokens that the answer may
// still have. The tokens in ends end an answer, and are allowed only where the answer is complete.
func (m *Matcher) Apply(logits []float32, room int, ends []uint32) {
	if words := max(m.vocabulary.words(), (len(logits)+63)/64); len(m.open) != words {
		m.open = make([]uint64, words)
	}
	m.allow(room)
	for _, id := range ends {
		if word := int(id >> 6); word < len(m.open) {
			m.open[word] &^= 1 << (id & 63)
			if m.state.Done() {
				m.open[word] |= 1 << (id & 63)
			}
		}
	}
	forbidden := float32(math.Inf(-1))
	for at := 0; at < len(logits); at += 64 {
		some := logits[at:min(at+64, len(logits))]
		shut := ^m.open[at>>6]
		if shut == ^uint64(0) {
			for i := range some {
				some[i] = forbidden
			}
			continue
		}
		for ; shut != 0; shut &= shut - 1 {
			if i := bits.TrailingZeros64(shut); i < len(some) {
				some[i] = forbidden
			}
		}
	}
}

// allow sets open to the tokens that are allowed if the answer may still have room tokens.
func (m *Matcher) allow(room int) {
	clear(m.open)
	may := m.masks[m.state]
	if may == nil {
		may = m.mask(m.state)
		m.masks[m.state] = may
		m.held += 8*cap(may.tokens) + 64*cap(may.sets)
	}
	limit := may.need
	if limit >= room && m.state.Need() <= room {
		// There is a token for every byte, so an answer that needs no more bytes than that can
		// still be finished.
		limit = room - 1
	}
	for _, set := range may.sets {
		if set.need <= limit {
			set.tokens.addTo(m.open)
		}
	}
	for _, t := range may.tokens {
		if int(t.need) <= limit {
			m.open[t.id>>6] |= 1 << (t.id & 63)
		}
	}
}
