// Package kvindex tracks which worker holds which prefixes in its KV cache, from reports of workers
// and from the prompts that were sent to them.
//
// An Index maps the chained names of blocks (pkg/kvblock) to sets of workers. Match returns how
// many of a prompt's first blocks each worker holds. The index is a table of fixed size and never
// allocates after New. When it is full, it evicts the block that was stored longest ago. An
// eviction can make a choice worse, but no answer wrong.
//
// A worker's reports are taken as exact (Store, Remove, Clear). A Forecast holds the blocks that a
// worker is only expected to hold, because a prompt was just sent to it; they expire.
package kvindex

import (
	"math/bits"
	"sync"
)

// MaxWorkers is the maximum number of workers in an index.
const MaxWorkers = 64

// A Worker is a number below MaxWorkers that Join assigned to a worker, until Leave.
type Worker int

func (w Worker) bit() uint64 { return 1 << w }

// An Index is safe for concurrent use. Matches run concurrently, and wait only for changes, which
// lock the index for small portions.
type Index struct {
	limit int // maximum number of blocks

	mu       sync.RWMutex // guards the following fields
	joined   uint64       // workers
	hidden   uint64       // workers that are being removed from all blocks
	table    table
	reported [MaxWorkers]int // number of reported blocks of each worker
	expected [MaxWorkers]int // number of forecast blocks of each worker
}

// New returns an index of at most this many blocks, 43 bytes each.
func New(blocks int) *Index {
	blocks = max(1, min(blocks, maxBlocks))
	return &Index{limit: blocks, table: newTable(blocks)}
}

// portion is the number of blocks that change under one lock, which takes some tens of
// microseconds.
const portion = 256

// Join assigns a number to a new worker; ok is false if there are too many workers.
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

// Leave removes a worker. Its number may then be assigned again.
func (x *Index) Leave(w Worker) {
	x.forget(w, true)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.joined &^= w.bit()
}

// Store records that a worker holds blocks.
func (x *Index) Store(w Worker, names []uint64) {
	x.each(names, func(name uint64) { x.store(w, name, false) })
}

// Remove records that a worker no longer holds blocks.
func (x *Index) Remove(w Worker, names []uint64) {
	x.each(names, func(name uint64) { x.remove(w, name, false) })
}

// Clear records that a worker holds no blocks. Its forecast stays.
func (x *Index) Clear(w Worker) { x.forget(w, false) }

// Held returns the numbers of reported and forecast blocks of a worker.
func (x *Index) Held(w Worker) (reported, forecast int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.reported[w], x.expected[w]
}

// Len returns the number of blocks in the index.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.table.used
}

// An Overlap is the number of a prompt's first blocks that each worker holds.
type Overlap [MaxWorkers]int

// run is the number of blocks that one lookup covers.
const run = 16

// Match returns the overlap with the prompt of these blocks. Engines evict prefixes from their
// ends, so a worker that holds the last block of a run is assumed to hold the whole run: Match
// looks up one block in sixteen of a long prompt, and all blocks of the runs in which the overlap
// of a worker ends.
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

// endIn finds where the overlap of each of these workers ends within the last run of names, which
// starts at begin.
func (x *Index) endIn(names []uint64, begin int, workers uint64, o *Overlap) {
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

// store records a reported or forecast block of a worker, and makes it the newest.
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
func (x *Index) remove(w Worker, name uint64, forecast bool) {
	if at, known := x.table.find(name); known {
		x.drop(at, w, !forecast, forecast)
	}
}

// drop removes a worker from a block, and the block from the table if no worker is left.
func (x *Index) drop(at uint32, w Worker, reported, forecast bool) {
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
func (x *Index) evict() {
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
func (x *Index) forget(w Worker, forecast bool) {
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
