package guide

import (
	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// A mask is the set of tokens that a state allows.
type mask struct {
	sets   []neededSet
	tokens []allowedToken // not in sets
	need   int            // the maximum need of any of them
}

// A neededSet is a set of tokens, and the minimum number of bytes that the answer needs after them.
type neededSet struct {
	tokens tokenSet
	need   int
}

// An allowedToken is a token, and the minimum number of bytes that the answer needs after it.
type allowedToken struct {
	id   uint32
	need int32
}

// maxLooks bounds the cost of a mask, in positions examined. If a state needs more of them, the
// deeper tokens are not allowed. One-byte tokens are found at any cost, so that there is always an
// allowed token.
const maxLooks = 1 << 15

// mask finds the tokens that a state allows. The tokens that stay within a run come from the run's
// table, which other states share; all others are found by following the trie.
func (m *Matcher) mask(s *grammar.State) *mask {
	w := &walk{Matcher: m, found: &mask{}, looks: maxLooks}
	runs, rest := m.automaton.Split(s)
	w.follow(rest)
	for len(runs) > 0 {
		same := 1 // number of runs that share a table; they are neighbours in nearly all states
		for same < len(runs) && runs[same].DFA == runs[0].DFA && runs[same].State == runs[0].State {
			same++
		}
		w.within(runs[:same])
		runs = runs[same:]
	}
	for _, set := range w.found.sets {
		w.found.need = max(w.found.need, set.need)
	}
	for _, t := range w.found.tokens {
		w.found.need = max(w.found.need, int(t.need))
	}
	return w.found
}

// A walk looks for the tokens of a mask.
type walk struct {
	*Matcher
	found *mask
	looks int // how many are left
	queue []place
}

// A place is a node of the trie, and the state after its bytes.
type place struct {
	at int32
	s  *grammar.State
}

// follow adds the tokens that a state allows at the root of the trie, the shortest first.
func (w *walk) follow(s *grammar.State) {
	w.queue = append(w.queue[:0], place{0, s})
	w.drain()
}

// drain adds the tokens below the places of the queue.
func (w *walk) drain() {
	v := w.vocabulary
	for ; len(w.queue) > 0; w.queue = w.queue[1:] {
		from := w.queue[0]
		for child := from.at + 1; child < v.nodes[from.at].end; child = v.nodes[child].end {
			if b := v.nodes[child].b; from.s.Live(b) {
				if w.looks -= from.s.Stacks(); w.looks < 0 && from.at != 0 {
					return
				}
				w.visit(child, w.automaton.Step(from.s, b))
			}
		}
	}
}

// visit adds the tokens of a node, and queues its children.
func (w *walk) visit(at int32, s *grammar.State) {
	for _, id := range w.vocabulary.tokens(at) {
		w.found.tokens = append(w.found.tokens, allowedToken{id, int32(s.Need())})
	}
	if w.vocabulary.nodes[at].end > at+1 {
		w.queue = append(w.queue, place{at, s})
	}
}

// within adds the tokens that begin within runs, which differ only in their counts and in what
// follows them.
func (w *walk) within(runs []grammar.OpenRun) {
	t := w.table(runs[0].DFA, runs[0].State)
	for _, g := range t.groups {
		need := grammar.Endless
		for i := range runs {
			if n, ok := g.allows(&runs[i]); ok {
				need = min(need, n+runs[i].After.Least())
			}
		}
		if need < grammar.Endless {
			w.found.sets = append(w.found.sets, neededSet{g.tokens, need})
		}
	}
	var after *grammar.State // of the exits with as many characters as the last one
	chars := int32(-1)
	w.queue = w.queue[:0]
	for _, e := range t.exits {
		if e.chars != chars {
			after, chars = w.after(runs, int(e.chars)), e.chars
		}
		if b := w.vocabulary.nodes[e.node].b; after.Live(b) {
			if w.looks -= after.Stacks(); w.looks < 0 {
				break
			}
			w.visit(e.node, w.automaton.Step(after, b))
		}
	}
	w.drain()
}

// after returns the state behind those runs that may end after a number of characters.
func (w *walk) after(runs []grammar.OpenRun, chars int) *grammar.State {
	var stacks []*grammar.Frame
	for i := range runs {
		if r := &runs[i]; !r.DFA.Counts || chars >= r.Min && (r.Max < 0 || chars <= r.Max) {
			stacks = append(stacks, r.After)
		}
	}
	return w.automaton.State(stacks...)
}

// table returns the table of a state of a DFA.
func (m *Matcher) table(d *grammar.DFA, state uint16) *table {
	key := tableKey{d, state}
	for _, all := range []tables{m.guide.vocabulary.strings, m.guide.tables, m.tables} {
		if t := all[key]; t != nil {
			return t
		}
	}
	t, _ := m.vocabulary.table(d, state)
	m.tables[key] = t
	m.held += t.size
	return t
}
