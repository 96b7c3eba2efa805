// Package kvevents tells subscribers which blocks an engine's KV cache holds: all of them first, then every change.
//
// The engine never waits for a subscriber. What one has not taken yet is kept per block, last change wins, up to a bound; past it
// everything is dropped, and the subscriber is told all blocks anew.
package kvevents

import (
	"context"
	"sync"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

const (
	// maxPending is how many changes a subscriber may leave untaken until it gets a new snapshot instead: some ten seconds of a
	// busy engine.
	maxPending = 1 << 16
	// maxBatch is how many blocks a message tells, so that a snapshot of any size is sent in messages of half a megabyte.
	maxBatch = 1 << 16
)

// A Hub knows the blocks that are held. The zero value holds none. All methods are safe for concurrent use.
type Hub struct {
	mu          sync.Mutex // guards the following fields and those of subscribers
	held        map[uint64]struct{}
	subscribers map[*Subscriber]struct{}
}

// Publish notes that removed are no longer held, and then that stored are.
func (h *Hub) Publish(removed, stored []uint64) {
	if len(removed)+len(stored) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		h.held = make(map[uint64]struct{})
	}
	for _, b := range removed {
		h.change(b, false)
	}
	for _, b := range stored {
		h.change(b, true)
	}
	for s := range h.subscribers {
		s.poke()
	}
}

// change notes what became of one block, if anything did.
func (h *Hub) change(block uint64, stored bool) {
	if _, held := h.held[block]; held == stored {
		return
	}
	if stored {
		h.held[block] = struct{}{}
	} else {
		delete(h.held, block)
	}
	for s := range h.subscribers {
		s.note(block, stored)
	}
}

// Clear notes that nothing is held any more.
func (h *Hub) Clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.held) == 0 { // as each second while an engine is away
		return
	}
	clear(h.held)
	for s := range h.subscribers {
		s.pending, s.reset = nil, true
		s.poke()
	}
}

// Held returns how many blocks are held.
func (h *Hub) Held() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held)
}

// Subscribe returns a new subscriber, which must be closed.
func (h *Hub) Subscribe() *Subscriber {
	s := &Subscriber{hub: h, ready: make(chan struct{}, 1), reset: true}
	s.poke()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subscribers == nil {
		h.subscribers = make(map[*Subscriber]struct{})
	}
	h.subscribers[s] = struct{}{}
	return s
}

// A Subscriber is told what is held. Next is for one goroutine at a time.
type Subscriber struct {
	hub   *Hub
	ready chan struct{} // capacity 1: something can be taken

	// Owned by Next.
	sequence uint64
	snapshot []uint64 // the rest of one

	// Guarded by the hub's mu.
	reset   bool            // all that is held is to be told anew
	pending map[uint64]bool // whether a block was stored or removed; at most maxPending, and empty if reset
}

// note has the subscriber told of a change, or of everything if it has left too many untaken.
func (s *Subscriber) note(block uint64, stored bool) {
	switch {
	case s.reset:
	case len(s.pending) >= maxPending:
		s.pending, s.reset = nil, true
	default:
		if s.pending == nil {
			s.pending = make(map[uint64]bool)
		}
		s.pending[block] = stored
	}
}

func (s *Subscriber) poke() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Close ends the subscription.
func (s *Subscriber) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.hub.subscribers, s)
}

// Next waits for the next change, and returns ctx's cause when ctx is done first.
func (s *Subscriber) Next(ctx context.Context) (*workerv1.KVEventsResponse, error) {
	for {
		if batch := s.take(); batch != nil {
			s.sequence++
			batch.Sequence = s.sequence
			return batch, nil
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take returns what can be told now, nil if nothing. A snapshot is taken at once and told in parts; what changes meanwhile waits.
func (s *Subscriber) take() *workerv1.KVEventsResponse {
	batch := &workerv1.KVEventsResponse{}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.reset {
		s.reset, batch.Reset_ = false, true
		s.snapshot = make([]uint64, 0, len(s.hub.held))
		for b := range s.hub.held {
			s.snapshot = append(s.snapshot, b)
		}
	}
	if n := min(len(s.snapshot), maxBatch); n > 0 || batch.GetReset_() {
		batch.Stored, s.snapshot = s.snapshot[:n:n], s.snapshot[n:]
		return batch
	}
	s.snapshot = nil // let go of what was told
	if len(s.pending) == 0 {
		return nil
	}
	for b, stored := range s.pending {
		if stored {
			batch.Stored = append(batch.Stored, b)
		} else {
			batch.Removed = append(batch.Removed, b)
		}
	}
	s.pending = nil
	return batch
}
