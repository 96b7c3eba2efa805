package tinyllama

import (
	"maps"
	"sync"
	"sync/atomic"
)

// An abandonedSet has the ids of sequences whose readers have left. Any goroutine may use it.
type abandonedSet struct {
	size atomic.Int32 // len(ids), so that an empty set costs no lock
	mu   sync.Mutex
	ids  map[uint64]struct{}
}

func (a *abandonedSet) add(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ids == nil {
		a.ids = make(map[uint64]struct{})
	}
	a.ids[id] = struct{}{}
	a.size.Store(int32(len(a.ids)))
}

// retain removes all sequences that are not among known. A reader may leave when the model has just
// forgotten its sequence, so Leave cannot remove them.
func (a *abandonedSet) retain(known map[uint64]*sequence) {
	if a.size.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.ids, func(id uint64, _ struct{}) bool { return known[id] == nil })
	a.size.Store(int32(len(a.ids)))
}

// interrupted marks the jobs of abandoned sequences among rows. It reports whether all rows belong to
// such jobs: then the tile need not be finished.
func (a *abandonedSet) interrupted(rows []row) bool {
	if a.size.Load() == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	all := true
	for _, r := range rows {
		if _, ok := a.ids[r.job.id]; ok {
			r.job.abandoned = true
		} else {
			all = false
		}
	}
	return all
}

// Abandon implements batch.Interrupter. A running Step drops the sequence's tile before the next
// layer, unless other sequences have tokens in it.
func (m *Model) Abandon(id uint64) { m.abandoned.add(id) }
