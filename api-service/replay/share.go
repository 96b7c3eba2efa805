package replay

import (
	"fmt"
	"slices"
)

// errEvicted ends a stream whose text was dropped to make room.
var errEvicted = fmt.Errorf("%w: its owner's streams keep more than their share, and it was the largest", ErrFull)

// An account counts the streams and bytes that one owner keeps in a log.
type account struct {
	bytes   int
	running map[*kept]struct{}
	ended   []*kept // oldest first; the first one is not forgotten
}

// open begins a stream's account. mu is held.
func (m *Memory) open(k *kept) {
	a := m.accounts[k.head.Owner]
	if a == nil {
		a = &account{running: map[*kept]struct{}{}}
		m.accounts[k.head.Owner] = a
	}
	k.account = a
	a.running[k] = struct{}{}
	m.charge(k, k.cost())
}

// charge counts bytes of a stream. mu is held.
func (m *Memory) charge(k *kept, n int) {
	m.bytes += n
	k.account.bytes += n
}

// end notes that a stream has ended.
func (a *account) end(k *kept) {
	delete(a.running, k)
	a.ended = append(a.ended, k)
}

// close ends the account of a stream that is forgotten. mu is held.
func (m *Memory) close(k *kept) {
	a := k.account
	m.charge(k, -k.cost())
	delete(a.running, k)
	for len(a.ended) > 0 && a.ended[0].forgotten {
		a.ended[0] = nil
		a.ended = a.ended[1:]
	}
	if len(a.running)+len(a.ended) == 0 {
		delete(m.accounts, k.head.Owner)
	}
	if !k.end.IsZero() {
		m.stale++
	}
}

// room makes room for n bytes of a stream, and reports whether it succeeded; k is nil for a new stream. mu is held.
//
// An owner's share is an equal part of Bytes, and an owner may exceed its share while there is room. When the log is
// full, room evicts streams of the owners over their share, ended streams before running ones, each time from the
// owner that keeps the most. So an owner within its share never loses a stream, running or ended, to other owners.
func (m *Memory) room(owner string, n int, k *kept) bool {
	if n > m.limits.Bytes {
		return false
	}
	for m.bytes+n > m.limits.Bytes {
		if !m.makeRoom(owner, n, k) {
			return false
		}
	}
	return true
}

// makeRoom forgets one ended stream, or drops the text of one running stream, and reports whether it found one. mu is
// held. Streams are large compared to events, so a pass over all owners for each evicted stream costs little.
func (m *Memory) makeRoom(owner string, n int, k *kept) bool {
	owners := len(m.accounts)
	if m.accounts[owner] == nil {
		owners++
	}
	share := m.limits.Bytes / owners
	var ended, running *account
	var endedBytes, runningBytes int
	var largest *kept
	for of, a := range m.accounts {
		bytes := a.bytes
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
			if victim := a.largest(k, n); victim != nil {
				running, runningBytes, largest = a, bytes, victim
			}
		}
	}
	switch {
	case ended != nil:
		m.forget(ended.ended[0])
		m.compact()
		return true
	case running == nil, running == m.accounts[owner] && (k == nil || largest == k):
		return false // the candidate is the stream that needs the room
	default:
		m.evict(largest)
		return true
	}
}

// largest returns the largest stream that runs, and of equals the newest; nil if the text of each has been dropped. k is counted with n
// more bytes.
func (a *account) largest(k *kept, n int) (largest *kept) {
	var most int
	for r := range a.running {
		bytes := r.cost()
		if r == k {
			bytes += n
		}
		if r.stop == nil && (bytes > most || bytes == most && r.head.Began.After(largest.head.Began)) {
			largest, most = r, bytes
		}
	}
	return largest
}

// evict drops the text of a running stream. The stream ends at its next event, and its readers get that ending. mu is
// held.
func (m *Memory) evict(k *kept) {
	before := k.cost()
	k.evicted, k.dropped = true, k.deltas()
	k.text, k.ends = nil, nil
	k.stop = errEvicted
	m.charge(k, k.cost()-before)
}

// compact drops forgotten streams from ended, when they are most of it. mu is held.
func (m *Memory) compact() {
	if m.stale > len(m.ended)/2 {
		m.ended = slices.DeleteFunc(m.ended, func(k *kept) bool { return k.forgotten })
		m.stale = 0
	}
}
