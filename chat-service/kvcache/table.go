package kvcache

import "math/bits"

// A table is a hash table with open addressing: a block's slot is its home or a later slot, with no
// empty slot in between. A slot is half a cache line, and a quarter of the slots is empty, so that
// one memory access usually finds a block.
type table struct {
	slots          []slot
	homes          uint64 // slots that can be homes; the slots behind them take the overflow of the last homes
	used           int
	oldest, newest uint32 // ends of the list of slots in the order of storing
}

// A slot is a block and the workers that hold it. A slot without workers is empty.
type slot struct {
	name               uint64
	reported, expected uint64 // workers that reported the block, and workers for which it is forecast
	older, newer       uint32 // indexes of slots, or none
}

func (s *slot) workers() uint64 { return s.reported | s.expected }

const (
	none = ^uint32(0)
	// overflow is the space for a cluster at the end of the table. Names are spread evenly, so
	// clusters of a hundred slots are rare.
	overflow = 1024
	// maxBlocks keeps slot indexes within 32 bits.
	maxBlocks = 1 << 31
	// ahead is the number of slots to fetch from memory in parallel, about the number of loads that
	// a core can have in flight.
	ahead = 16
)

func newTable(blocks int) table {
	homes := blocks + blocks/3 + 1
	return table{slots: make([]slot, homes+overflow), homes: uint64(homes), oldest: none, newest: none}
}

// home returns the home of a name. Names are hashes, so their upper bits serve as well as a
// remainder.
func (t *table) home(name uint64) uint32 {
	home, _ := bits.Mul64(name, t.homes)
	return uint32(home)
}

// warm fetches the homes of the last names of at most sixteen runs of this length, in parallel
// instead of one after another.
func (t *table) warm(names []uint64, length int) {
	var seen uint64
	for i := length - 1; i < min(len(names), ahead*length); i += length {
		seen |= t.slots[t.home(names[i])].name
	}
	sink(seen)
}

// sink prevents the compiler from removing loads whose only purpose is to fill the cache.
//
//go:noinline
func sink(uint64) {}

// find returns the slot of a name, or the slot where the name would be inserted.
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

// insert returns a new slot for a name that is not in the table, as the newest. The slot counts as
// empty until its workers are set. ok is false if there is no space near its home; then the block
// is not recorded.
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

// delete empties a slot, and moves up the following slots that find would otherwise miss.
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

// join links two slots in the list; none stands for an end of the list.
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

// move moves a slot, including its place in the list.
func (t *table) move(from, to uint32) {
	s := t.slots[from]
	t.slots[to] = s
	t.join(s.older, to)
	t.join(to, s.newer)
}
