package replay

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// errEvicted ends a stream whose text was dropped to make room.
var errEvicted = fmt.Errorf("%w: the streams of its owner exceed their share, and this stream was the largest", ErrFull)

// An account counts the streams and the bytes of one owner.
type account struct {
	bytes atomic.Int64 // the charges of the owner's streams

	// Guarded by Memory.mu.
	running map[*memoryStream]struct{}
	ended   []*memoryStream // oldest first
}

// openAccount adds a new stream, whose cost is reserved, to the account of its owner. mu is held.
func (m *Memory) openAccount(s *memoryStream) {
	a := m.accounts[s.head.Owner]
	if a == nil {
		a = &account{running: map[*memoryStream]struct{}{}}
		m.accounts[s.head.Owner] = a
	}
	s.account = a
	a.running[s] = struct{}{}
	s.charge(headCost + s.memoSize)
}

// reserve adds n bytes to the log's count, or returns false if the log has no room for them.
func (m *Memory) reserve(n int64) bool {
	for {
		bytes := m.bytes.Load()
		if bytes+n > int64(m.limits.Bytes) {
			return false
		}
		if m.bytes.CompareAndSwap(bytes, bytes+n) {
			return true
		}
	}
}

// charge counts n bytes that are reserved in the log as bytes of the stream. mu is held, unless the
// stream is new.
func (s *memoryStream) charge(n int64) {
	s.bytes.Add(n)
	s.account.bytes.Add(n)
}

// end moves a stream that has ended from running to ended.
func (a *account) end(s *memoryStream) {
	delete(a.running, s)
	a.ended = append(a.ended, s)
}

// closeAccount removes a stream that is being forgotten from the account of its owner. mu and the
// lock of the stream are held.
func (m *Memory) closeAccount(s *memoryStream) {
	a := s.account
	n := s.bytes.Swap(0)
	m.bytes.Add(-n)
	a.bytes.Add(-n)
	delete(a.running, s)
	if s.phase == phaseEnded {
		a.dropEnded(s)
	}
	if len(a.running)+len(a.ended) == 0 {
		delete(m.accounts, s.head.Owner)
	}
}

// dropEnded removes a stream from ended. An eviction drops the first one, and so do most expiries.
func (a *account) dropEnded(s *memoryStream) {
	if a.ended[0] == s {
		a.ended[0] = nil
		a.ended = a.ended[1:]
		return
	}
	a.ended = slices.DeleteFunc(a.ended, func(other *memoryStream) bool { return other == s })
}

// makeRoom reserves n bytes for a stream of an owner, and evicts other streams until they fit. s is nil
// for a new stream. It returns false if there is nothing left to evict. mu is held.
//
// An owner's share is an equal part of Limits.Bytes, and an owner may exceed its share while there is
// room. When the log is full, makeRoom evicts streams of the owners over their share, ended streams
// before running ones, each time from the owner that keeps the most. So an owner within its share never
// loses a stream, running or ended, to other owners.
func (m *Memory) makeRoom(owner string, n int64, s *memoryStream) bool {
	if n > int64(m.limits.Bytes) {
		return false
	}
	for !m.reserve(n) {
		if !m.evictOne(owner, n, s) {
			return false
		}
	}
	return true
}

// evictOne forgets one ended stream, or drops the text of one running stream, and reports whether it
// found one. mu is held. Streams are large compared to events, so a pass over all owners for each
// evicted stream costs little.
func (m *Memory) evictOne(owner string, n int64, s *memoryStream) bool {
	owners := len(m.accounts)
	if m.accounts[owner] == nil {
		owners++
	}
	share := int64(m.limits.Bytes / owners)
	var ended, running *account
	var endedBytes, runningBytes int64
	var largest *memoryStream
	for of, a := range m.accounts {
		bytes := a.bytes.Load()
		if of == owner {
			bytes += n
		}
		if bytes <= share {
			continue
		}
		if len(a.ended) > 0 && bytes > endedBytes {
			ended, endedBytes = a, bytes
		}
		if bytes > runningBytes || bytes == runningBytes && of == owner {
			if candidate := a.largest(s, n); candidate != nil {
				running, runningBytes, largest = a, bytes, candidate
			}
		}
	}
	switch {
	case ended != nil:
		oldest := ended.ended[0]
		m.forget(oldest)
		m.compact()
		if m.Evicted != nil {
			m.Evicted(oldest.head)
		}
		return true
	case running == nil, running == m.accounts[owner] && (s == nil || largest == s):
		return false // the stream that needs the room would be evicted itself
	default:
		m.evict(largest)
		return true
	}
}

// largest returns the owner's running stream whose eviction frees the most bytes, and the newest of
// several such streams. It returns nil if all streams are evicted already. The stream s counts with
// n more bytes. Memory.mu is held.
func (a *account) largest(s *memoryStream, n int64) (largest *memoryStream) {
	var most int64
	for r := range a.running {
		bytes := r.bytes.Load() - r.memoSize
		if bytes == 0 {
			continue // evicted already
		}
		if r == s {
			bytes += n
		}
		if bytes > most || bytes == most && r.head.Began.After(largest.head.Began) {
			largest, most = r, bytes
		}
	}
	return largest
}

// evict drops the text of a running stream. The stream ends at its next event, and its readers get
// that ending. For the ending the stream keeps its memo and the charge of the memo. mu is held.
func (m *Memory) evict(s *memoryStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.evict()
	m.bytes.Add(-n)
	s.account.bytes.Add(-n)
}

// compact removes forgotten streams from queues that have more of them than others. mu is held.
func (m *Memory) compact() {
	for _, q := range m.ended {
		if q.stale > len(q.streams)/2 {
			q.streams = slices.DeleteFunc(q.streams, func(s *memoryStream) bool { return s.phase == phaseForgotten })
			q.stale = 0
		}
	}
}
