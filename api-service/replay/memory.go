package replay

import (
	"context"
	"sync"
	"time"
)

// Limits bound what a log keeps. The zero value has the defaults.
type Limits struct {
	Bytes       int           // over all streams; owners over their share make room
	StreamBytes int           // of one stream, which gets ErrFull past it
	TTL         time.Duration // how long a stream is kept after its end
}

// Defaults of Limits.
const (
	DefaultBytes       = 256 << 20
	DefaultStreamBytes = 4 << 20
	DefaultTTL         = 5 * time.Minute
)

func (l Limits) withDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = DefaultBytes
	}
	if l.StreamBytes == 0 {
		l.StreamBytes = DefaultStreamBytes
	}
	if l.TTL == 0 {
		l.TTL = DefaultTTL
	}
	return l
}

// What a stream costs beside its text.
const (
	headCost  = 1024
	eventCost = 4
)

// A Memory is a Log in the process's memory.
type Memory struct {
	limits Limits

	mu       sync.Mutex // guards the following fields, and those of all kept and accounts
	streams  map[string]*kept
	keys     map[string]*kept
	accounts map[string]*account // by owner
	bytes    int
	ended    []*kept     // oldest first, some of them forgotten
	stale    int         // how many of ended are forgotten
	sweep    *time.Timer // runs while there are ended ones
	closed   bool
}

// A kept is one stream.
type kept struct {
	head      Head
	account   *account
	evicted   bool     // its text was dropped to make room
	dropped   uint64   // how many deltas that were
	text      []byte   // of all deltas since
	ends      []uint32 // where each of them ends in text
	rest      []Event  // what comes after the deltas
	end       time.Time
	held      bool   // readers see no further than shown
	shown     uint64 // if held
	forgotten bool
	stop      error         // why the stream must end; nil if it need not
	ready     chan struct{} // capacity 1; gets a value when there is more, if somebody ships it
	grown     chan struct{} // closed, and replaced, when there is more to read
}

// NewMemory returns an empty log.
func NewMemory(l Limits) *Memory {
	return &Memory{limits: l.withDefaults(), streams: map[string]*kept{}, keys: map[string]*kept{}, accounts: map[string]*account{}}
}

// Begin implements Log. This process is the only instance there is, so what it makes is Shared.
func (m *Memory) Begin(_ context.Context, h Head) (Head, error) {
	h.Shared = true
	k, err := m.begin(h)
	if err != nil {
		return Head{}, err
	}
	return k.head, nil
}

func (m *Memory) begin(h Head) (*kept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.keys[h.Key]; k != nil && h.Key != "" {
		return k, nil
	}
	if m.streams[h.ID] != nil {
		return nil, ErrTaken
	}
	if !m.room(h.Owner, headCost, nil) {
		return nil, ErrFull
	}
	k := &kept{head: h, grown: make(chan struct{})}
	m.streams[h.ID] = k
	if h.Key != "" {
		m.keys[h.Key] = k
	}
	m.open(k)
	return k, nil
}

func (m *Memory) forget(k *kept) {
	if k.forgotten {
		return
	}
	k.forgotten = true
	m.close(k)
	k.text, k.ends, k.rest = nil, nil, nil
	delete(m.streams, k.head.ID)
	select {
	case k.ready <- struct{}{}:
	default:
	}
	if m.keys[k.head.Key] == k {
		delete(m.keys, k.head.Key)
	}
	close(k.grown)
}

// cost returns the bytes for which a stream is charged. An evicted stream costs nothing; it ends soon.
func (k *kept) cost() int {
	if k.evicted && k.end.IsZero() {
		return 0
	}
	n := headCost + len(k.text) + eventCost*len(k.ends)
	for _, e := range k.rest {
		n += len(e.Data)
	}
	return n
}

// deltas is the number of the last delta.
func (k *kept) deltas() uint64 { return k.dropped + uint64(len(k.ends)) }

// last is the number of the last event.
func (k *kept) last() uint64 { return k.deltas() + uint64(len(k.rest)) }

// Append implements Log.
func (m *Memory) Append(id, epoch string, events ...Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.ofEpoch(id, epoch)
	switch {
	case k == nil:
		return ErrUnknown
	case !k.end.IsZero():
		return ErrClosed
	}
	size, closing, failed := 0, false, false
	for _, e := range events {
		size += len(e.Data) + eventCost
		closing, failed = closing || e.Kind.Closing(), failed || e.Kind == Failure
		if e.Kind == Delta && len(k.rest) > 0 {
			return ErrClosed
		}
	}
	switch {
	case k.stop != nil && !failed: // a stream whose text is gone does not end as a complete one
		return k.stop
	case closing: // a closing event is small, and always has room
	case k.cost()+size > m.limits.StreamBytes, !m.room(k.head.Owner, size, k):
		return ErrFull
	}
	before := k.cost()
	for _, e := range events {
		k.add(e)
	}
	if closing {
		m.end(k)
	}
	m.charge(k, k.cost()-before)
	if !k.held {
		k.wake()
	}
	select {
	case k.ready <- struct{}{}:
	default: // told already, or there is nobody to tell
	}
	return nil
}

func (k *kept) add(e Event) {
	if e.Kind == Delta {
		k.text = append(k.text, e.Data...)
		k.ends = append(k.ends, uint32(len(k.text))) // StreamBytes keeps it within
		return
	}
	e.Seq = k.last() + 1
	k.rest = append(k.rest, e)
}

func (k *kept) wake() {
	close(k.grown)
	k.grown = make(chan struct{})
}

// end begins the time for which an ended stream is kept. mu is held.
func (m *Memory) end(k *kept) {
	k.end = time.Now()
	m.ended = append(m.ended, k)
	k.account.end(k)
	if m.sweep == nil && !m.closed {
		m.sweep = time.AfterFunc(m.limits.TTL, m.expire)
	}
}

// expire forgets those whose time has come, and comes back for the next.
func (m *Memory) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.ended) > 0 && time.Since(m.ended[0].end) >= m.limits.TTL {
		m.forget(m.ended[0])
		m.ended[0] = nil
		m.ended = m.ended[1:]
		m.stale--
	}
	m.sweep = nil
	if len(m.ended) > 0 && !m.closed {
		m.sweep = time.AfterFunc(m.limits.TTL-time.Since(m.ended[0].end), m.expire)
	}
}

// Forget implements Log.
func (m *Memory) Forget(_ context.Context, id, epoch string) {
	m.drop(id, epoch)
}

// drop forgets the log of a stream with this epoch, and returns the log; nil if there is none.
func (m *Memory) drop(id, epoch string) *kept {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.ofEpoch(id, epoch)
	if k != nil {
		m.forget(k)
	}
	return k
}

// ofEpoch returns the log of a stream with this epoch; nil if there is none. mu is held.
func (m *Memory) ofEpoch(id, epoch string) *kept {
	if k := m.streams[id]; k != nil && k.head.Epoch == epoch {
		return k
	}
	return nil
}

// Open implements Log.
func (m *Memory) Open(_ context.Context, id string) (Reader, error) {
	if k := m.find(id); k != nil {
		return memoryReader{m, k}, nil
	}
	return nil, ErrUnknown
}

func (m *Memory) find(id string) *kept {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.streams[id]
}

// Seen implements Log: there are no other instances.
func (m *Memory) Seen(context.Context, string) (time.Duration, bool) { return 0, false }

// Close implements Log.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.sweep != nil {
		m.sweep.Stop()
	}
	return nil
}

type memoryReader struct {
	m *Memory
	k *kept
}

// Head implements Reader.
func (r memoryReader) Head() Head { return r.k.head }

// Close implements Reader.
func (r memoryReader) Close() {}

// Read implements Reader.
func (r memoryReader) Read(_ context.Context, after uint64) (Page, error) {
	m, k := r.m, r.k
	m.mu.Lock()
	defer m.mu.Unlock()
	to := k.last()
	if k.held {
		to = min(to, k.shown)
	}
	switch {
	case k.forgotten:
		return Page{}, ErrUnknown
	case after > to:
		return Page{}, ErrAhead
	}
	p := Page{Events: k.merged(after, to)}
	if p.Ended = !k.end.IsZero() && to == k.last(); !p.Ended {
		p.More = k.grown
	}
	return p, nil
}

// merged returns the events in (after, to].
func (k *kept) merged(after, to uint64) []Event {
	deltas := k.deltas()
	var events []Event
	after = max(after, k.dropped)
	for after < min(to, deltas) {
		from, upto := k.offset(after), after+1
		for upto < min(to, deltas) && k.offset(upto+1)-from <= maxMerged {
			upto++
		}
		events = append(events, Event{Seq: upto, Kind: Delta, Data: string(k.text[from:k.offset(upto)])})
		after = upto
	}
	if to > deltas {
		events = append(events, k.rest[after-deltas:to-deltas]...)
	}
	return events
}

// offset is where the delta with this number ends in the text.
func (k *kept) offset(seq uint64) int {
	if seq <= k.dropped {
		return 0
	}
	return int(k.ends[seq-k.dropped-1])
}
