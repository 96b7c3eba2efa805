package guide

import (
	"cmp"
	"slices"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// A table is the vocabulary as seen from one state of a DFA: the tokens that stay within a run, and
// the nodes of the trie at which a text of the DFA has ended. It does not depend on what follows
// the run, so one table serves all runs of the DFA. It is immutable.
type table struct {
	groups []group
	exits  []exit // the fewest characters first
	size   int    // bytes in memory
}

// A group is a set of tokens with the same effect on a run.
type group struct {
	effect
	tokens tokenSet
}

// An effect is what a token does to a run.
type effect struct {
	chars   int32 // number of characters that the token completes
	partial bool  // the token ends within a character
	need    int32 // bytes to the next accepting state
}

// An exit is a node whose parent ends a text of the DFA.
type exit struct {
	chars int32 // number of complete characters before it
	node  int32
}

// allows returns the minimum number of bytes that a run needs after the group's tokens; ok is false
// if the run has no room for the tokens.
func (e effect) allows(r *grammar.OpenRun) (need int, ok bool) {
	least, most := int(e.chars), int(e.chars)
	if e.partial {
		least, most = least+1, most+1
	}
	if r.DFA.Counts && r.Max >= 0 && most > r.Max {
		return 0, false
	}
	return int(e.need) + max(r.Min-least, 0), true
}

// tables are the tables of the states of DFAs.
type tables map[tableKey]*table

type tableKey struct {
	dfa   *grammar.DFA
	state uint16
}

// maxTables bounds the tables that are made in advance, in bytes, and maxVisits bounds the nodes of
// the trie that are visited for them: some hundred milliseconds. The tables of further states are made
// when an answer reaches them.
const (
	maxTables = 4 << 20
	maxVisits = 1 << 24
)

// newTables returns the tables of the first states of DFAs.
func (v *Vocabulary) newTables(all []*grammar.DFA) tables {
	made, room, visits := tables{}, maxTables, maxVisits
	for _, d := range all {
		for state := grammar.Start; state < d.States() && room > 0 && visits > 0; state++ {
			t, visited := v.table(d, uint16(state)) //nolint:gosec // states have 16 bits
			made[tableKey{d, uint16(state)}] = t    //nolint:gosec // states have 16 bits
			room, visits = room-t.size, visits-visited
		}
	}
	return made
}

// table matches the whole vocabulary with a DFA, from a state on. visited is the number of nodes that
// were visited.
func (v *Vocabulary) table(d *grammar.DFA, from uint16) (_ *table, visited int) {
	type place struct {
		state uint16
		chars int32
	}
	path := make([]place, v.longest+1) // by depth
	path[0] = place{state: from}
	t := &table{}
	found := map[effect][]uint32{}
	var lastEffect effect
	var last []uint32 // found[lastEffect], to save most look-ups
	for at := int32(1); at < int32(len(v.nodes)-1); {
		visited++
		n := &v.nodes[at]
		before := path[n.depth-1]
		to := d.Next(before.state, n.b)
		if to == grammar.Dead {
			if n.depth > 1 && d.Accepts(before.state) && d.After.Has(n.b) {
				t.exits = append(t.exits, exit{before.chars, at})
			}
			at = n.end
			continue
		}
		here := place{to, before.chars}
		if d.Counts && d.Accepts(to) {
			here.chars++
		}
		path[n.depth] = here
		if tokens := v.tokens(at); len(tokens) > 0 {
			e := effect{here.chars, d.Counts && !d.Accepts(to), int32(d.Need(to, 0))} //nolint:gosec // at most the number of states
			if e != lastEffect {
				found[lastEffect] = last
				lastEffect, last = e, found[e]
			}
			last = append(last, tokens...)
		}
		at++
	}
	found[lastEffect] = last
	for e, ids := range found {
		if len(ids) > 0 {
			g := group{e, v.set(ids)}
			t.groups = append(t.groups, g)
			t.size += g.tokens.size()
		}
	}
	slices.SortFunc(t.groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.chars, b.chars), cmp.Compare(a.need, b.need))
	})
	slices.SortStableFunc(t.exits, func(a, b exit) int { return cmp.Compare(a.chars, b.chars) })
	t.exits = slices.Clip(t.exits)
	t.size += 64 + len(t.exits)*8
	return t, visited
}

// A tokenSet is an immutable set of tokens: a list if they are few, and a bitset otherwise.
type tokenSet struct {
	ids  []uint32
	bits []uint64
}

func (v *Vocabulary) set(ids []uint32) tokenSet {
	if len(ids) < len(v.spelled)/32 { // a list needs less memory
		return tokenSet{ids: slices.Clone(ids)}
	}
	bits := make([]uint64, v.words())
	for _, id := range ids {
		bits[id>>6] |= 1 << (id & 63)
	}
	return tokenSet{bits: bits}
}

// words returns the length of a bitset of all tokens.
func (v *Vocabulary) words() int { return (len(v.spelled) + 63) / 64 }

func (s tokenSet) size() int { return 64 + 4*len(s.ids) + 8*len(s.bits) }

// addTo adds the set to a bitset.
func (s tokenSet) addTo(bits []uint64) {
	for _, id := range s.ids {
		bits[id>>6] |= 1 << (id & 63)
	}
	for i, word := range s.bits {
		bits[i] |= word
	}
}
