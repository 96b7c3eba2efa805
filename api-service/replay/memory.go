package replay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A Memory is a Log in the memory of the process.
//
// The bytes of all streams never exceed Limits.Bytes, except for closing events, which always have room:
// an append reserves its bytes before it stores anything. The shares of owners are computed when the
// log is full, while other streams append, so a share can be off by the appends of that moment.
type Memory struct {
	// Evicted is called with the head, without the memo, of an ended stream that was dropped to
	// make room. It must neither wait nor use the log. It may be nil, and is set before the log is
	// used.
	Evicted func(Head)

	limits Limits
	bytes  atomic.Int64 // the charges of all streams

	mu       sync.Mutex // guards the following fields and those of all accounts; taken before stream.mu
	streams  map[string]*memoryStream
	keys     map[string]*memoryStream
	accounts map[string]*account      // by owner
	ended    map[time.Duration]*queue // ended streams, by the time for which they are kept
	closed   bool
}

// A queue has the ended streams that are kept for the same time.
type queue struct {
	streams []*memoryStream // oldest first; some may be forgotten
	stale   int             // the number of forgotten streams
	sweep   *time.Timer     // runs while there are streams
}

// NewMemory returns an empty log.
func NewMemory(l Limits) *Memory {
	return &Memory{
		limits: l.WithDefaults(), streams: map[string]*memoryStream{}, keys: map[string]*memoryStream{}, accounts: map[string]*account{},
		ended: map[time.Duration]*queue{},
	}
}

// Begin implements Log. A stream is Shared, because this process is the only instance.
func (m *Memory) Begin(_ context.Context, h Head) (Head, error) {
	h.Shared = true
	w, err := m.Add(h)
	if err != nil {
		return Head{}, err
	}
	return w.Head(), nil
}

// Add is Begin, except that it returns the writer of the stream and leaves Head.Shared as it is. If a
// stream with the same Key is kept, Add returns the writer of that stream.
func (m *Memory) Add(h Head) (*Writer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.keys[h.Key]; s != nil && h.Key != "" {
		return &s.writer, nil
	}
	if m.streams[h.ID] != nil {
		return nil, ErrTaken
	}
	if h.cost() > int64(m.limits.StreamBytes) || !m.makeRoom(h.Owner, h.cost(), nil) {
		return nil, ErrFull
	}
	return &m.add(h, nil).writer, nil
}

// add adds a stream, whose cost is reserved. mu is held.
func (m *Memory) add(h Head, seams Seams) *memoryStream {
	s := &memoryStream{head: h, memoSize: int64(len(h.Memo)), memo: h.Memo, keptFor: m.limits.KeepsFor(h), seams: seams}
	s.head.Memo = ""
	s.writer = Writer{m, s}
	m.streams[h.ID] = s
	if h.Key != "" && m.keys[h.Key] == nil {
		m.keys[h.Key] = s
	}
	m.openAccount(s)
	return s
}

// Resume adds a stream that another instance began, with its deltas so far, and returns the writer
// of its next generation. The last seam is the position of the last delta. Resume fails with
// ErrTaken, with ErrFull, or with errGap if deltas are missing.
func (m *Memory) Resume(h Head, seams Seams, deltas []Event) (*Writer, error) {
	if len(seams) == 0 || seams[len(seams)-1] != uint64(len(deltas)) {
		return nil, errGap
	}
	size := h.cost()
	for i, e := range deltas {
		if e.Kind != Delta || e.Seq != seams.Number(uint64(i+1)) {
			return nil, errGap
		}
		size += int64(len(e.Data) + len(e.Note) + eventCost)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.streams[h.ID] != nil {
		return nil, ErrTaken
	}
	if !m.makeRoom(h.Owner, size, nil) {
		return nil, ErrFull
	}
	s := m.add(h, seams)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge(size - h.cost())
	for _, e := range deltas {
		s.add(e)
	}
	return &s.writer, nil
}

// errGap reports that a stream cannot be resumed, because some of its events are missing.
var errGap = errors.New("replay: the log of the stream has a gap")

// Writer implements Log.
func (m *Memory) Writer(id, epoch string) (*Writer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.find(id, epoch); s != nil {
		return &s.writer, nil
	}
	return nil, ErrUnknown
}

// find returns the stream with this id and epoch, or nil. mu is held.
func (m *Memory) find(id, epoch string) *memoryStream {
	if s := m.streams[id]; s != nil && s.head.Epoch == epoch {
		return s
	}
	return nil
}

// Append implements Log.
func (m *Memory) Append(id, epoch string, events ...Event) error {
	w, err := m.Writer(id, epoch)
	if err != nil {
		return err
	}
	return w.Append(events...)
}

// Forget implements Log.
func (m *Memory) Forget(_ context.Context, id, epoch string) { m.Drop(id, epoch) }

// Drop is Forget, and returns the head of the dropped stream, without its memo. ok is false if
// there is no such stream.
func (m *Memory) Drop(id, epoch string) (h Head, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.find(id, epoch)
	if s == nil {
		return Head{}, false
	}
	m.forget(s)
	m.compact()
	return s.head, true
}

// Refuse implements Log.
func (m *Memory) Refuse(_ context.Context, id, epoch string, failure Event) {
	m.EndRefused(id, epoch, failure)
}

// EndRefused is Refuse, and returns the head of the stream, without its memo, and the closing event.
// ok is false if there is no such stream.
func (m *Memory) EndRefused(id, epoch string, failure Event) (h Head, closing Event, ok bool) {
	w, err := m.Writer(id, epoch)
	if err != nil {
		return Head{}, Event{}, false
	}
	_ = w.Append(failure) // fails if the stream has its closing event already
	m.mu.Lock()
	defer m.mu.Unlock()
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != phaseEnded { // it was forgotten in the meantime
		return Head{}, Event{}, false
	}
	if m.keys[s.head.Key] == s {
		delete(m.keys, s.head.Key)
	}
	h = s.head
	s.head.Key = "" // a service that writes the stream to a server again must not take the key again
	time.AfterFunc(RefusedTTL, func() { m.Drop(id, epoch) })
	return h, s.rest[len(s.rest)-1], true
}

// Erase implements Log.
func (m *Memory) Erase(_ context.Context, id, epoch string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.find(id, epoch)
	if s == nil {
		return true, nil
	}
	if s.phase != phaseEnded {
		return false, nil
	}
	m.forget(s)
	m.compact()
	return true, nil
}

// forget drops a stream and wakes its readers. mu is held.
func (m *Memory) forget(s *memoryStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == phaseForgotten {
		return
	}
	if s.phase == phaseEnded {
		m.ended[s.keptFor].stale++
	}
	m.closeAccount(s)
	s.phase = phaseForgotten
	s.drop()
	delete(m.streams, s.head.ID)
	if m.keys[s.head.Key] == s {
		delete(m.keys, s.head.Key)
	}
	s.wakeOutbox()
	s.wakeReaders()
}

// HeadOfKey returns the head of the stream with an idempotency key. ok is false if there is none.
func (m *Memory) HeadOfKey(key string) (h Head, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.keys[key]; s != nil && key != "" {
		return s.writer.Head(), true
	}
	return Head{}, false
}

// Open implements Log.
func (m *Memory) Open(_ context.Context, id string) (Reader, error) {
	m.mu.Lock()
	s := m.streams[id]
	m.mu.Unlock()
	if s == nil {
		return nil, ErrUnknown
	}
	return s.open(), nil
}

// HandOver implements Log. There are no other instances.
func (m *Memory) HandOver(context.Context, string, string) bool { return false }

// Retire implements Log. There are no other instances.
func (m *Memory) Retire() {}

// Stop implements Log. There are no other instances.
func (m *Memory) Stop(context.Context, string, string, bool, func(Head) bool) bool { return false }

// Seen implements Log. There are no other instances.
func (m *Memory) Seen(context.Context, string) (time.Duration, bool) { return 0, false }

// Close implements Log.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, q := range m.ended {
		if q.sweep != nil {
			q.sweep.Stop()
		}
	}
	return nil
}

// end starts the TTL of an ended stream. mu and the lock of the stream are held.
func (m *Memory) end(s *memoryStream) {
	s.phase, s.end = phaseEnded, time.Now()
	q := m.ended[s.keptFor]
	if q == nil {
		q = &queue{}
		m.ended[s.keptFor] = q
	}
	q.streams = append(q.streams, s)
	s.account.end(s)
	if q.sweep == nil && !m.closed {
		q.sweep = time.AfterFunc(s.keptFor, func() { m.expire(q, s.keptFor) })
	}
}

// expire forgets the streams of a queue that have ended a time ttl ago, and sets the timer for the next
// stream.
func (m *Memory) expire(q *queue, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(q.streams) > 0 && time.Since(q.streams[0].end) >= ttl {
		m.forget(q.streams[0])
		q.streams[0] = nil
		q.streams = q.streams[1:]
		q.stale--
	}
	q.sweep = nil
	if len(q.streams) > 0 && !m.closed {
		q.sweep = time.AfterFunc(ttl-time.Since(q.streams[0].end), func() { m.expire(q, ttl) })
	}
}
