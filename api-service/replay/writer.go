package replay

import "errors"

// A Writer appends events to the log of one stream. It finds the stream without a lock, and an
// append takes only the lock of that stream, except for a closing event and when the log is full.
// It is safe for concurrent use.
//
// Append and Delta return ErrUnknown if the stream's log was dropped, even if a later stream has
// the same id. They return ErrClosed after the closing event, and for a delta after an event of
// another kind. After ErrFull nothing was added. Any other error is the reason why the stream must
// end: then the log takes only a Failure as the closing event.
type Writer struct {
	memory *Memory
	stream *memoryStream
}

// Head returns the head of the stream.
func (w *Writer) Head() Head {
	w.stream.mu.Lock()
	defer w.stream.mu.Unlock()
	return w.stream.describe()
}

// Delta appends one delta with its note, which may be empty. It copies both, and allocates nothing
// except for the growth of the stream's buffer.
func (w *Writer) Delta(data, note []byte) error {
	s, size := w.stream, int64(len(data)+len(note)+eventCost)
	s.mu.Lock()
	err := w.admit(batch{size: size, deltas: true})
	if err == nil {
		s.addDelta(data, note)
		s.announce()
	}
	s.mu.Unlock()
	if errors.Is(err, errNoRoom) {
		return w.appendSlowly(batch{size: size, deltas: true}, []Event{{Kind: Delta, Data: string(data), Note: string(note)}})
	}
	return err
}

// Append appends events. Deltas precede events of all other kinds. A closing event always has room.
func (w *Writer) Append(events ...Event) error {
	b := batchOf(events)
	if b.closing {
		return w.appendSlowly(b, events)
	}
	s := w.stream
	s.mu.Lock()
	err := w.admit(b)
	if err == nil {
		for _, e := range events {
			s.add(e)
		}
		s.announce()
	}
	s.mu.Unlock()
	if errors.Is(err, errNoRoom) {
		return w.appendSlowly(b, events)
	}
	return err
}

// errNoRoom reports that the log is full and must evict something first.
var errNoRoom = errors.New("replay: full")

// A batch describes events that are appended together.
type batch struct {
	size            int64 // their charge, in bytes
	deltas          bool  // the batch has a Delta
	closing, failed bool  // the batch has a closing event; it is a Failure
}

func batchOf(events []Event) (b batch) {
	for _, e := range events {
		b.size += int64(len(e.Data) + len(e.Note) + eventCost)
		b.deltas = b.deltas || e.Kind == Delta
		b.closing = b.closing || e.Kind.Closing()
		b.failed = b.failed || e.Kind == Failure
	}
	return b
}

// admit checks that the stream can take a batch without a closing event, and charges it. The lock
// of the stream is held.
func (w *Writer) admit(b batch) error {
	if err := w.check(b); err != nil {
		return err
	}
	if !w.memory.reserve(b.size) {
		return errNoRoom
	}
	w.stream.charge(b.size)
	return nil
}

// check returns the error with which the stream refuses a batch. The lock of the stream is held.
func (w *Writer) check(b batch) error {
	s := w.stream
	switch {
	case s.phase == phaseForgotten:
		return ErrUnknown
	case s.phase == phaseEnded, b.deltas && len(s.rest) > 0:
		return ErrClosed
	case s.cause != nil && !b.failed: // a stream whose text was dropped must not end as complete
		return s.cause
	case !b.closing && s.bytes.Load()+b.size > int64(w.memory.limits.StreamBytes):
		return ErrFull
	default:
		return nil
	}
}

// appendSlowly appends events while it holds the lock of the whole log: it makes room for the
// events, or ends the stream.
func (w *Writer) appendSlowly(b batch, events []Event) error {
	m, s := w.memory, w.stream
	m.mu.Lock()
	defer m.mu.Unlock()
	if !b.closing && !m.makeRoom(s.head.Owner, b.size, s) {
		return ErrFull
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := w.check(b); err != nil {
		if !b.closing {
			m.bytes.Add(-b.size) // release the reservation: the stream has ended meanwhile
		}
		return err
	}
	if b.closing {
		if s.evicted {
			b.size += headCost // the eviction had refunded it
		}
		m.bytes.Add(b.size)
	}
	s.charge(b.size)
	for _, e := range events {
		s.add(e)
	}
	if b.closing {
		m.end(s)
	}
	s.announce()
	return nil
}
