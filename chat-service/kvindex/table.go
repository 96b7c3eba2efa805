package kvindex

import "math/bits"

// A table is a hash table with open addresses: a block's slot is at its home or behind it, with no empty slot between. Slots are
// half a cache line each, and a quarter of them is empty, so that a block is mostly found with one look at memory.
type table struct {
	slots          []slot
	homes          uint64 // slots that can be a home; behind them is room for the last ones' neighbours
	used           int
	oldest, newest uint32 // ends of the list of slots, by when they were stored
}

// A slot is a block and the workers that hold it; one without workers is empty.
type slot struct {
	name         uint64
	told, hoped  uint64 // workers: those that said so, and those of which it is forecast
	older, newer uint32 // slots, or none
}

func (s *slot) workers() uint64 { return s.told | s.hoped }

const (
	none = ^uint32(0)
	// overflow is room for a cluster at the end of the table; names spread evenly, and clusters of a hundred are rare.
	overflow = 1024
	// maxBlocks keeps slots countable in 32 bits.
	maxBlocks = 1 << 31
	// ahead is how many slots are fetched from memory at once: about as many as a core can wait for.
	ahead = 16
)

func newTable(blocks int) table {
	homes := blocks + blocks/3 + 1
	return table{slots: make([]slot, homes+overflow), homes: uint64(homes), oldest: none, newest: none}
}

// home is where a name belongs: names are hashes, so that their upper part is as good as a remainder.
func (t *table) home(name uint64) uint32 {
	home, _ := bits.Mul64(name, t.homes)
	return uint32(home)
}

// warm fetches the homes of the last names of runs of a length, sixteen at most, all at once rather than one after another.
func (t *table) warm(names []uint64, length int) {
	var seen uint64
	for i := length - 1; i < min(len(names), ahead*length); i += length {
		seen |= t.slots[t.home(names[i])].name
	}
	sink(seen)
}

// sink keeps the compiler from leaving out what only the processor's cache notices.
//
//go:noinline
func sink(uint64) {}

// find returns the slot of a name; if there is none, the slot where it would be.
func (t *table) find(name uint64) (at uint32, ok bool) {
	for at = t.home(name); int(at) < len(t.slots); at++ {
		s := &t.slots[at]
		if s.workers() == 0 {
			return at, false
		}
		if s.name == name {
			return at, true
		}
	}
	return at, false
}

// holders returns the workers that hold a block.
func (t *table) holders(name uint64) uint64 {
	if at, ok := t.find(name); ok {
		return t.slots[at].workers()
	}
	return 0
}

// insert returns a slot for a name that is not there, as the newest. It is empty until its workers are set. ok is false if there is
// no room near its home, in which case the block is not remembered.
func (t *table) insert(name uint64) (at uint32, ok bool) {
	at, _ = t.find(name)
	if int(at) >= len(t.slots) {
		return 0, false
	}
	t.slots[at] = slot{name: name}
	t.link(at)
	t.used++
	return at, true
}

// delete empties a slot, and moves those behind it that would no longer be found.
func (t *table) delete(at uint32) {
	t.unlink(at)
	t.used--
	for next := at + 1; int(next) < len(t.slots) && t.slots[next].workers() != 0; next++ {
		if t.home(t.slots[next].name) <= at {
			t.move(next, at)
			at = next
		}
	}
	t.slots[at] = slot{}
}

// touch makes a slot the newest.
func (t *table) touch(at uint32) {
	if t.newest != at {
		t.unlink(at)
		t.link(at)
	}
}

func (t *table) link(at uint32) {
	s := &t.slots[at]
	s.older, s.newer = t.newest, none
	if t.newest == none {
		t.oldest = at
	} else {
		t.slots[t.newest].newer = at
	}
	t.newest = at
}

func (t *table) unlink(at uint32) {
	s := t.slots[at]
	t.join(s.older, s.newer)
}

// join makes two slots neighbours in the list; none is an end of it.
func (t *table) join(older, newer uint32) {
	if older == none {
		t.oldest = newer
	} else {
		t.slots[older].newer = newer
	}
	if newer == none {
		t.newest = older
	} else {
		t.slots[newer].older = older
	}
}

// move takes a slot to another place, and its place in the list with it.
func (t *table) move(from, to uint32) {
	s := t.slots[from]
	t.slots[to] = s
	t.join(s.older, to)
	t.join(to, s.newer)
}
