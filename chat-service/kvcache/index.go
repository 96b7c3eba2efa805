package kvcache

import (
	"math/bits"
	"sync"
)

// maxWorkers is the maximum number of workers in an index.
const maxWorkers = 64

// A workerNumber is a number below maxWorkers that Join assigned to a worker, until Leave.
type workerNumber int

func (w workerNumber) bit() uint64 { return 1 << w }

// An index maps the chained names of blocks (pkg/kvblock) to sets of workers. Match returns how
// many of a prompt's first blocks each worker holds. The index is a table of fixed size and never
// allocates after newIndex. When it is full, it evicts the block that was stored longest ago. An
// eviction can make a choice worse, but no answer wrong.
//
// An index is safe for concurrent use. Matches run concurrently, and wait only for changes, which
// lock the index for small portions.
//
// A worker's reports are taken as exact (Store, Remove, Clear). A forecast holds the blocks that a
// worker is only expected to hold, because a prompt was just sent to it; they expire.
type index struct {
	limit int // maximum number of blocks

	mu       sync.RWMutex // guards the following fields
	joined   uint64       // workers
	hidden   uint64       // workers that are being removed from all blocks
	table    table
	reported [maxWorkers]int // number of reported blocks of each worker
	expected [maxWorkers]int // number of forecast blocks of each worker
}

// newIndex returns an index of at most this many blocks, 43 bytes each.
func newIndex(blocks int) *index {
	blocks = max(1, min(blocks, maxBlocks))
	return &index{limit: blocks, table: newTable(blocks)}
}

// portion is the number of blocks that change under one lock, which takes some tens of
// microseconds.
const portion = 256

// Join assigns a number to a new worker; ok is false if there are too many workers.
func (x *index) Join() (w workerNumber, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	free := bits.TrailingZeros64(^x.joined)
	if free == maxWorkers {
		return 0, false
	}
	x.joined |= 1 << free
	return workerNumber(free), true
}

// Leave removes a worker. Its number may then be assigned again.
func (x *index) Leave(w workerNumber) {
	x.forget(w, true)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.joined &^= w.bit()
}

// Store records that a worker holds blocks.
func (x *index) Store(w workerNumber, names []uint64) {
	x.each(names, func(name uint64) { x.store(w, name, false) })
}

// Remove records that a worker no longer holds blocks.
func (x *index) Remove(w workerNumber, names []uint64) {
	x.each(names, func(name uint64) { x.remove(w, name, false) })
}

// Clear records that a worker holds no blocks. Its forecast stays.
func (x *index) Clear(w workerNumber) { x.forget(w, false) }

// Held returns the numbers of reported and forecast blocks of a worker.
func (x *index) Held(w workerNumber) (reported, forecast int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.reported[w], x.expected[w]
}

// Len returns the number of blocks in the index.
func (x *index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.table.used
}

// An overlap is the number of a prompt's first blocks that each worker holds.
type overlap [maxWorkers]int

// runLength is the number of blocks that one lookup covers.
const runLength = 16

// Match returns the overlap with the prompt of these blocks. Engines evict prefixes from their
// ends, so a worker that holds the last block of a run is assumed to hold the whole run: Match
// looks up one block in sixteen of a long prompt, and all blocks of the runs in which the overlap
// of a worker ends.
func (x *index) Match(names []uint64) (o overlap) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	alive := x.joined &^ x.hidden
	for begin := 0; begin < len(names) && alive != 0; begin += runLength {
		if begin%(runLength*ahead) == 0 {
			x.table.warm(names[begin:], runLength)
		}
		end := min(begin+runLength, len(names))
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

// endIn finds where the overlap of each of these workers ends within the last run of names, which
// starts at begin.
func (x *index) endIn(names []uint64, begin int, workers uint64, o *overlap) {
	x.table.warm(names[begin:], 1)
	for i := begin; workers != 0; i++ {
		still := uint64(0) // no worker holds the last block
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
func (x *index) each(names []uint64, change func(name uint64)) {
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

// store records a reported or forecast block of a worker, and makes it the newest.
func (x *index) store(w workerNumber, name uint64, forecast bool) {
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
	if forecast && s.expected&w.bit() == 0 {
		s.expected |= w.bit()
		x.expected[w]++
	}
	if !forecast && s.reported&w.bit() == 0 {
		s.reported |= w.bit()
		x.reported[w]++
	}
}

// remove removes a worker's report of a block, or its forecast.
func (x *index) remove(w workerNumber, name uint64, forecast bool) {
	if at, known := x.table.find(name); known {
		x.drop(at, w, !forecast, forecast)
	}
}

// drop removes a worker from a block, and the block from the table if no worker is left.
func (x *index) drop(at uint32, w workerNumber, reported, forecast bool) {
	s := &x.table.slots[at]
	if reported && s.reported&w.bit() != 0 {
		s.reported &^= w.bit()
		x.reported[w]--
	}
	if forecast && s.expected&w.bit() != 0 {
		s.expected &^= w.bit()
		x.expected[w]--
	}
	if s.workers() == 0 {
		x.table.delete(at)
	}
}

// evict removes the block that was stored longest ago.
func (x *index) evict() {
	at := x.table.oldest
	s := &x.table.slots[at]
	for all := s.reported; all != 0; all &= all - 1 {
		x.reported[bits.TrailingZeros64(all)]--
	}
	for all := s.expected; all != 0; all &= all - 1 {
		x.expected[bits.TrailingZeros64(all)]--
	}
	x.table.delete(at)
}

// forget removes a worker from all blocks. Meanwhile Match ignores the worker, and blocks of other
// workers may change: a deletion moves slots only towards the front, so a scan from the back misses
// none.
func (x *index) forget(w workerNumber, forecast bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.reported[w] == 0 && (!forecast || x.expected[w] == 0) {
		return
	}
	x.hidden |= w.bit()
	for end := len(x.table.slots); end > 0 && (x.reported[w] > 0 || forecast && x.expected[w] > 0); end -= sweep {
		for at := end - 1; at >= max(0, end-sweep); at-- {
			if s := &x.table.slots[at]; s.workers()&w.bit() != 0 {
				x.drop(uint32(at), w, true, forecast)
			}
		}
		x.mu.Unlock() // let other callers in
		x.mu.Lock()
	}
	x.hidden &^= w.bit()
}

// sweep is the number of slots that are scanned under one lock.
const sweep = 1 << 14
