// Package kvevents publishes which blocks an engine's KV cache holds: subscribers get all blocks
// first, then every change.
//
// The engine never waits for a subscriber. Unread changes are merged per block, the last change
// wins, up to a bound. Above the bound all changes are dropped, and the subscriber gets a new
// snapshot.
package kvevents

import (
	"context"
	"sync"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

const (
	// maxPending is the number of changes that a subscriber may leave unread before it gets a new
	// snapshot instead: some ten seconds of a busy engine.
	maxPending = 1 << 16
	// maxBatch is the maximum number of blocks per message, so that a snapshot of any size is sent
	// in messages of half a megabyte.
	maxBatch = 1 << 16
)

// A Hub holds the set of cached blocks. The zero value is empty. All methods are safe for
// concurrent use.
type Hub struct {
	mu          sync.Mutex // guards the following fields and those of subscribers
	held        map[uint64]struct{}
	subscribers map[*Subscriber]struct{}
}

// Publish removes the blocks in removed, then adds those in stored.
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

// change records a change of one block, if it is a change.
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

// Clear removes all blocks.
func (h *Hub) Clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.held) == 0 { // called each second while an engine is away
		return
	}
	clear(h.held)
	for s := range h.subscribers {
		s.pending, s.reset = nil, true
		s.poke()
	}
}

// Held returns the number of blocks.
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

// A Subscriber receives the blocks of a hub. Only one goroutine at a time may call Next.
type Subscriber struct {
	hub   *Hub
	ready chan struct{} // capacity 1: there are changes to take

	// Owned by Next.
	sequence uint64
	snapshot []uint64 // the part of the snapshot that is still to be sent

	// Guarded by the hub's mu.
	reset   bool            // the next message begins a new snapshot
	pending map[uint64]bool // whether a block was stored or removed; at most maxPending, and empty if reset
}

// note queues a change for the subscriber, or a new snapshot if too many changes are unread.
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

// Next waits for the next change. It returns ctx's cause if ctx is done first.
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

// take returns the next message, or nil if there is none. A snapshot is copied at once and sent in
// parts; changes wait until it is complete.
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
	s.snapshot = nil // release the snapshot's memory
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
