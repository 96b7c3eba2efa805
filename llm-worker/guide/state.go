package guide

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// A grammar builds and caches the states of one matcher. It is not safe for concurrent use.
type grammar struct {
	frames map[frameKey]*frame
	states map[string]*state
	ids    uint32
}

// A frame is a stack: the symbol that comes next, and the frame after it. Equal frames are the same
// pointer. A nil frame is the end.
type frame struct {
	symbol *symbol
	min    int // of the current repeat
	max    int
	next   *frame
	id     uint32
	need   int // bytes of the shortest text to the end
}

type frameKey struct {
	symbol   *symbol
	min, max int
	next     *frame
}

// A state is the set of positions that an answer may be at: the top bytes of several stacks.
type state struct {
	tops   []*frame // at most maxStacks, those found first; the order depends only on the bytes so far
	done   bool     // the answer may end here
	need   int      // minimum number of bytes until the answer may end
	follow map[byte]*state
	mask   *mask
}

// maxStacks bounds a state, which could otherwise double with each byte: `anyOf` may have the same
// beginning twice, and refer to itself. Further stacks are dropped. A stack that ends the answer
// soonest is always kept, because the shortest alternative of each choice is followed first.
const maxStacks = 1 << 10

func newGrammar() *grammar {
	return &grammar{frames: map[frameKey]*frame{}, states: map[string]*state{}}
}

// push puts a symbol on a stack.
func (g *grammar) push(s *symbol, next *frame) *frame { return g.frame(s, s.min, s.max, next) }

func (g *grammar) frame(s *symbol, least, most int, next *frame) *frame {
	key := frameKey{s, least, most, next}
	if f := g.frames[key]; f != nil {
		return f
	}
	g.ids++
	f := &frame{symbol: s, min: least, max: most, next: next, id: g.ids, need: s.need}
	if s.kind == repeat {
		f.need = product(least, s.parts[0].need)
	}
	if next != nil {
		f.need = min(f.need+next.need, endless)
	}
	g.frames[key] = f
	return f
}

// least returns the minimum number of bytes to the end.
func (f *frame) least() int {
	if f == nil {
		return 0
	}
	return f.need
}

// state returns the state of stacks.
func (g *grammar) state(stacks ...*frame) *state {
	s := &state{need: endless, follow: map[byte]*state{}}
	seen := map[*frame]bool{}
	for _, f := range stacks {
		g.expand(f, s, seen)
	}
	key := make([]byte, 0, 4*len(s.tops)+1)
	for _, f := range s.tops {
		key = binary.LittleEndian.AppendUint32(key, f.id)
		s.need = min(s.need, f.need)
	}
	if s.done {
		key, s.need = append(key, 1), 0
	}
	if known := g.states[string(key)]; known != nil {
		return known
	}
	g.states[string(key)] = s
	return s
}

// expand adds to s the positions with which f begins.
func (g *grammar) expand(f *frame, s *state, seen map[*frame]bool) {
	switch {
	case f == nil:
		s.done = true
		return
	case seen[f] || f.need >= endless || len(s.tops) == maxStacks: // it never ends, or its result would not be used
		return
	}
	seen[f] = true
	switch f.symbol.kind {
	case oneByte:
		s.tops = append(s.tops, f)
	case inOrder:
		next := f.next
		for _, part := range slices.Backward(f.symbol.parts) {
			next = g.push(part, next)
		}
		g.expand(next, s, seen)
	case oneOf:
		for _, part := range f.symbol.parts {
			if len(s.tops) == maxStacks {
				return
			}
			g.expand(g.push(part, f.next), s, seen)
		}
	case repeat:
		if f.min == 0 {
			g.expand(f.next, s, seen)
		}
		if f.max != 0 {
			rest := g.frame(f.symbol, max(f.min-1, 0), max(f.max-1, -1), f.next)
			g.expand(g.push(f.symbol.parts[0], rest), s, seen)
		}
	}
}

// step returns the state after b, or nil if b is not allowed.
func (g *grammar) step(s *state, b byte) *state {
	if next, ok := s.follow[b]; ok {
		return next
	}
	var stacks []*frame
	for _, f := range s.tops {
		if f.symbol.class.has(b) {
			stacks = append(stacks, f.next)
		}
	}
	var next *state
	if len(stacks) > 0 {
		slices.SortStableFunc(stacks, func(a, b *frame) int { return cmp.Compare(a.least(), b.least()) })
		next = g.state(stacks...)
	}
	s.follow[b] = next
	return next
}
