// Package kvindex knows which worker holds which prefixes in its KV cache: from what workers tell, and from what was sent to them.
//
// An Index maps the chained names of blocks (pkg/kvblock) to sets of workers. Match says of how many of a prompt's first blocks each
// worker has. It never allocates after New: the index is a table of fixed size, and when it is full the block that was stored
// longest ago goes. Forgetting costs a worse choice, never a wrong answer.
//
// A worker that tells what it holds is believed exactly (Store, Remove, Clear). What is only to be expected of a worker, because a
// prompt was just sent to it, is a Forecast, and expires.
package kvindex

import (
	"math/bits"
	"sync"
)

// MaxWorkers is how many workers an index tells apart.
const MaxWorkers = 64

// A Worker is a number below MaxWorkers that Join gave to a worker, until it leaves.
type Worker int

func (w Worker) bit() uint64 { return 1 << w }

// An Index is safe for concurrent use. Matches run beside each other, and wait for changes, which are made in small portions.
type Index struct {
	limit int // blocks

	mu     sync.RWMutex // guards the following fields
	joined uint64       // workers
	hidden uint64       // workers of which everything is just being forgotten
	table  table
	told   [MaxWorkers]int // blocks of each worker
	hoped  [MaxWorkers]int // blocks that are forecast of each worker
}

// New returns an index of so many blocks at most, 43 bytes each.
func New(blocks int) *Index {
	blocks = max(1, min(blocks, maxBlocks))
	return &Index{limit: blocks, table: newTable(blocks)}
}

// portion is how many blocks are changed while matches wait: some tens of microseconds.
const portion = 256

// Join returns the number of a new worker; ok is false if there are too many.
func (x *Index) Join() (w Worker, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	free := bits.TrailingZeros64(^x.joined)
	if free == MaxWorkers {
		return 0, false
	}
	x.joined |= 1 << free
	return Worker(free), true
}

// Leave forgets a worker, whose number may then be another one's.
func (x *Index) Leave(w Worker) {
	x.forget(w, true)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.joined &^= w.bit()
}

// Store notes that a worker holds blocks.
func (x *Index) Store(w Worker, names []uint64) {
	x.each(names, func(name uint64) { x.store(w, name, false) })
}

// Remove notes that a worker no longer holds blocks.
func (x *Index) Remove(w Worker, names []uint64) {
	x.each(names, func(name uint64) { x.remove(w, name, false) })
}

// Clear notes that a worker holds nothing. What is forecast of it stays.
func (x *Index) Clear(w Worker) { x.forget(w, false) }

// Held returns how many blocks a worker is known to hold, and how many are forecast.
func (x *Index) Held(w Worker) (told, forecast int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.told[w], x.hoped[w]
}

// Len returns how many blocks the index knows.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.table.used
}

// An Overlap is how many of a prompt's first blocks each worker holds.
type Overlap [MaxWorkers]int

// run is how many blocks are looked at together.
const run = 16

// Match returns the overlap of the prompt that has these blocks. Engines give up prefixes from their ends, so that a worker which
// holds the last block of a run is taken to hold all of it: of a long prompt, one block in sixteen is looked for, and all of
// the runs in which somebody's overlap ends.
func (x *Index) Match(names []uint64) (o Overlap) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	alive := x.joined &^ x.hidden
	for begin := 0; begin < len(names) && alive != 0; begin += run {
		if begin%(run*ahead) == 0 {
			x.table.warm(names[begin:], run)
		}
		end := min(begin+run, len(names))
		holders := x.table.holders(names[end-1])
		if lost := alive &^ holders; lost != 0 {
			x.endIn(names[:end], begin, lost, &o)
		}
		alive &= holders
	}
	for ; alive != 0; alive &= alive - 1 {
		o[bits.TrailingZeros64(alive)] = len(names)
	}
	return o
}

// endIn finds where in the last run of names, from begin on, the overlap of each of these workers ends.
func (x *Index) endIn(names []uint64, begin int, workers uint64, o *Overlap) {
	x.table.warm(names[begin:], 1)
	for i := begin; workers != 0; i++ {
		still := uint64(0) // none holds the last
		if i < len(names)-1 {
			still = workers & x.table.holders(names[i])
		}
		for lost := workers &^ still; lost != 0; lost &= lost - 1 {
			o[bits.TrailingZeros64(lost)] = i
		}
		workers = still
	}
}

// each changes blocks in portions.
func (x *Index) each(names []uint64, change func(name uint64)) {
	for len(names) > 0 {
		n := min(len(names), portion)
		x.mu.Lock()
		x.table.warm(names[:n], 1)
		for _, name := range names[:n] {
			change(name)
		}
		x.mu.Unlock()
		names = names[n:]
	}
}

// store notes a block of a worker, told or forecast, as the one stored last.
func (x *Index) store(w Worker, name uint64, forecast bool) {
	at, known := x.table.find(name)
	switch {
	case known:
		x.table.touch(at)
	default:
		if x.table.used >= x.limit {
			x.evict()
		}
		var ok bool
		if at, ok = x.table.insert(name); !ok {
			return
		}
	}
	s := &x.table.slots[at]
	if forecast && s.hoped&w.bit() == 0 {
		s.hoped |= w.bit()
		x.hoped[w]++
	}
	if !forecast && s.told&w.bit() == 0 {
		s.told |= w.bit()
		x.told[w]++
	}
}

// remove forgets that a worker holds a block, or that this was forecast.
func (x *Index) remove(w Worker, name uint64, forecast bool) {
	if at, known := x.table.find(name); known {
		x.drop(at, w, !forecast, forecast)
	}
}

// drop takes a worker off a block, and the block out of the table if it was the last.
func (x *Index) drop(at uint32, w Worker, told, forecast bool) {
	s := &x.table.slots[at]
	if told && s.told&w.bit() != 0 {
		s.told &^= w.bit()
		x.told[w]--
	}
	if forecast && s.hoped&w.bit() != 0 {
		s.hoped &^= w.bit()
		x.hoped[w]--
	}
	if s.workers() == 0 {
		x.table.delete(at)
	}
}

// evict forgets the block that was stored longest ago.
func (x *Index) evict() {
	at := x.table.oldest
	s := &x.table.slots[at]
	for all := s.told; all != 0; all &= all - 1 {
		x.told[bits.TrailingZeros64(all)]--
	}
	for all := s.hoped; all != 0; all &= all - 1 {
		x.hoped[bits.TrailingZeros64(all)]--
	}
	x.table.delete(at)
}

// forget takes a worker off all blocks. Nothing matches it meanwhile, while other workers' blocks come and go: a deletion moves
// slots towards the front alone, so on the way from the back none is missed.
func (x *Index) forget(w Worker, forecast bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.told[w] == 0 && (!forecast || x.hoped[w] == 0) {
		return
	}
	x.hidden |= w.bit()
	for end := len(x.table.slots); end > 0 && (x.told[w] > 0 || forecast && x.hoped[w] > 0); end -= sweep {
		for at := end - 1; at >= max(0, end-sweep); at-- {
			if s := &x.table.slots[at]; s.workers()&w.bit() != 0 {
				x.drop(uint32(at), w, true, forecast)
			}
		}
		x.mu.Unlock() // let others in
		x.mu.Lock()
	}
	x.hidden &^= w.bit()
}

// sweep is how many slots are looked at while others wait.
const sweep = 1 << 14
