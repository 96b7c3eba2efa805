package grammar

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// An Automaton builds and caches the states of one text. It is not safe for concurrent use.
type Automaton struct {
	frames map[frameKey]*Frame
	states map[string]*State
	stacks int // of all states together
	ids    uint32
}

// A Frame is a stack: the symbol that comes next, and the frame after it. Equal frames are the same
// pointer. A nil frame is the end.
type Frame struct {
	frameKey
	id   uint32
	need int // bytes of the shortest text to the end
}

type frameKey struct {
	symbol   *Symbol
	state    uint16 // of the current run
	min, max int    // of the current repeat or run; min is the number of bytes read of a literal
	next     *Frame
}

// A State is the set of positions that a text may be at: the top bytes and runs of several stacks.
type State struct {
	tops   []*Frame // at most maxStacks, those found first; the order depends only on the bytes so far
	live   Class    // the bytes that may follow
	done   bool     // the text may end here
	need   int      // minimum number of bytes until the text may end
	follow map[byte]*State
}

// maxStacks bounds a state, which could otherwise double with each byte: `anyOf` may have the same
// beginning twice, and refer to itself. Further stacks are dropped. A stack that ends the text
// soonest is always kept, because the shortest alternative of each choice is followed first.
const maxStacks = 1 << 10

// maxStates, maxFrames and maxHeld bound the caches: states, frames, and stacks of all states.
const (
	maxStates = 1 << 14
	maxFrames = 1 << 16
	maxHeld   = 1 << 18
)

// New returns an automaton, and its state at the beginning of a text of the symbol.
func New(root *Symbol) (*Automaton, *State) {
	a := &Automaton{frames: map[frameKey]*Frame{}, states: map[string]*State{}}
	return a, a.State(a.push(root, nil))
}

// Large reports whether the caches are above their bounds, so that the caller should Restart.
func (a *Automaton) Large() bool {
	return len(a.states) > maxStates || len(a.frames) > maxFrames || a.stacks > maxHeld
}

// Restart returns an automaton with empty caches, and the state in it that equals s.
func (a *Automaton) Restart(s *State) (*Automaton, *State) {
	fresh := &Automaton{frames: map[frameKey]*Frame{}, states: map[string]*State{}, ids: a.ids} // the kept frames have their ids
	for _, f := range s.tops {
		for ; f != nil && fresh.frames[f.frameKey] == nil; f = f.next {
			fresh.frames[f.frameKey] = f
		}
	}
	stacks := s.tops
	if s.done {
		stacks = append([]*Frame{nil}, stacks...)
	}
	return fresh, fresh.State(stacks...)
}

// Done reports whether the text may end here.
func (s *State) Done() bool { return s.done }

// Need returns the minimum number of bytes until the text may end.
func (s *State) Need() int { return s.need }

// Live reports whether b may follow.
func (s *State) Live(b byte) bool { return s.live.Has(b) }

// Stacks returns the number of positions.
func (s *State) Stacks() int { return len(s.tops) }

// push puts a symbol on a stack.
func (a *Automaton) push(s *Symbol, next *Frame) *Frame {
	key := frameKey{symbol: s, min: s.min, max: s.max, next: next}
	if s.kind == run {
		key.state = Start
	}
	return a.frame(key)
}

func (a *Automaton) frame(key frameKey) *Frame {
	if f := a.frames[key]; f != nil {
		return f
	}
	a.ids++
	f := &Frame{frameKey: key, id: a.ids, need: key.symbol.need}
	switch key.symbol.kind {
	case repeat:
		f.need = product(key.min, key.symbol.parts[0].need)
	case run:
		f.need = key.symbol.dfa.Need(key.state, key.min)
	case literal:
		f.need = len(key.symbol.text) - key.min
	case oneByte, inOrder, oneOf: // always the same
	}
	f.need = min(f.need+key.next.Least(), Endless)
	a.frames[key] = f
	return f
}

// Least returns the minimum number of bytes to the end.
func (f *Frame) Least() int {
	if f == nil {
		return 0
	}
	return f.need
}

// State returns the state of stacks.
func (a *Automaton) State(stacks ...*Frame) *State {
	s := &State{need: Endless, follow: map[byte]*State{}}
	seen := map[*Frame]bool{}
	for _, f := range stacks {
		a.expand(f, s, seen)
	}
	key := make([]byte, 0, 4*len(s.tops)+1)
	for _, f := range s.tops {
		key = binary.LittleEndian.AppendUint32(key, f.id)
		s.need = min(s.need, f.need)
		switch f.symbol.kind {
		case run:
			s.live.join(&f.symbol.dfa.live[f.state])
		case literal:
			s.live.Add(f.symbol.text[f.min], f.symbol.text[f.min])
		default:
			s.live.join(f.symbol.class)
		}
	}
	if s.done {
		key, s.need = append(key, 1), 0
	}
	if known := a.states[string(key)]; known != nil {
		return known
	}
	a.states[string(key)] = s
	a.stacks += len(s.tops)
	return s
}

// expand adds to s the positions with which f begins.
func (a *Automaton) expand(f *Frame, s *State, seen map[*Frame]bool) {
	switch {
	case f == nil:
		s.done = true
		return
	case seen[f] || f.need >= Endless || len(s.tops) == maxStacks: // it never ends, or its result would not be used
		return
	}
	seen[f] = true
	switch f.symbol.kind {
	case oneByte, literal:
		s.tops = append(s.tops, f)
	case inOrder:
		next := f.next
		for _, part := range slices.Backward(f.symbol.parts) {
			next = a.push(part, next)
		}
		a.expand(next, s, seen)
	case oneOf:
		for _, part := range f.symbol.parts {
			if len(s.tops) == maxStacks {
				return
			}
			a.expand(a.push(part, f.next), s, seen)
		}
	case repeat:
		if f.min == 0 {
			a.expand(f.next, s, seen)
		}
		if f.max != 0 {
			rest := a.frame(frameKey{symbol: f.symbol, min: max(f.min-1, 0), max: max(f.max-1, -1), next: f.next})
			a.expand(a.push(f.symbol.parts[0], rest), s, seen)
		}
	case run:
		if f.min == 0 && f.symbol.dfa.accept[f.state] {
			a.expand(f.next, s, seen)
		}
		if f.max != 0 && len(s.tops) < maxStacks {
			s.tops = append(s.tops, f)
		}
	}
}

// Step returns the state after b, or nil if b is not allowed.
func (a *Automaton) Step(s *State, b byte) *State {
	if !s.live.Has(b) {
		return nil
	}
	if next := s.follow[b]; next != nil {
		return next
	}
	var stacks []*Frame
	for _, f := range s.tops {
		switch f.symbol.kind {
		case run:
			if to := f.symbol.dfa.Next(f.state, b); to != Dead {
				stacks = append(stacks, a.moved(f, to))
			}
		case literal:
			if f.symbol.text[f.min] == b {
				stacks = append(stacks, a.read(f))
			}
		default:
			if f.symbol.class.Has(b) {
				stacks = append(stacks, f.next)
			}
		}
	}
	slices.SortStableFunc(stacks, func(a, b *Frame) int { return cmp.Compare(a.Least(), b.Least()) })
	next := a.State(stacks...)
	s.follow[b] = next
	return next
}

// read returns the frame after the next byte of a literal.
func (a *Automaton) read(f *Frame) *Frame {
	key := f.frameKey
	if key.min++; key.min == len(key.symbol.text) {
		return f.next
	}
	return a.frame(key)
}

// moved returns the frame of a run after a byte that leads to a state.
func (a *Automaton) moved(f *Frame, to uint16) *Frame {
	key := f.frameKey
	key.state = to
	if d := f.symbol.dfa; d.Counts && d.accept[to] {
		key.min, key.max = max(key.min-1, 0), max(key.max-1, -1)
	}
	return a.frame(key)
}

// An OpenRun is a position within a run: the text so far has led the DFA to a state, and Min to Max
// further characters must follow before After.
type OpenRun struct {
	DFA      *DFA
	State    uint16
	Min, Max int
	After    *Frame
}

// Split returns the runs of a state, and the state of its other positions.
func (a *Automaton) Split(s *State) ([]OpenRun, *State) {
	var runs []OpenRun
	var rest []*Frame
	for _, f := range s.tops {
		if f.symbol.kind == run {
			runs = append(runs, OpenRun{f.symbol.dfa, f.state, f.min, f.max, f.next})
		} else {
			rest = append(rest, f)
		}
	}
	if len(runs) == 0 {
		return nil, s
	}
	return runs, a.State(rest...)
}
