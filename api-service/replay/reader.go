package replay

import (
	"context"
	"slices"
)

// A memoryReader reads one stream. Only its own goroutine uses it, except for the fields guarded by the
// lock of the stream.
type memoryReader struct {
	stream *memoryStream
	head   Head
	events []Event       // reused by each Read
	more   chan struct{} // capacity 1

	waiting bool // guarded by stream.mu: the last Read has returned more, and no value was sent since
}

// open adds a reader to the stream.
func (s *memoryStream) open() *memoryReader {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &memoryReader{stream: s, head: s.describe(), more: make(chan struct{}, 1)}
	s.readers = append(s.readers, r)
	return r
}

// Head implements Reader.
func (r *memoryReader) Head() Head { return r.head }

// Close implements Reader.
func (r *memoryReader) Close() {
	s := r.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers = slices.DeleteFunc(s.readers, func(other *memoryReader) bool { return other == r })
}

// wake tells the reader that there may be more to read. The lock of the stream is held.
func (r *memoryReader) wake() {
	if r.waiting {
		r.waiting = false
		r.more <- struct{}{} // never blocks: wait has taken the value of an earlier wake
	}
}

// wait returns a channel that receives one value when there may be more to read. The lock of the stream
// is held.
func (r *memoryReader) wait() <-chan struct{} {
	if !r.waiting {
		r.waiting = true
		select {
		case <-r.more: // the value of an earlier page for which the caller did not wait
		default:
		}
	}
	return r.more
}

// Read implements Reader. It holds the lock of the stream only while it takes a view of the log.
func (r *memoryReader) Read(ctx context.Context, after uint64) (Page, error) {
	for {
		p, held, err := r.read(after)
		if held == nil {
			return p, err
		}
		select {
		case <-held:
		case <-ctx.Done():
			return Page{}, context.Cause(ctx)
		}
	}
}

// read is one attempt to Read. A reader at another instance may have the event at the cursor from the
// server before the outbox knows that the event is written. Then read returns a channel that receives a
// value when it must be called again.
func (r *memoryReader) read(after uint64) (p Page, held <-chan struct{}, err error) {
	s := r.stream
	s.mu.Lock()
	last := s.last()
	to := last
	if s.held {
		to = min(to, s.shown)
	}
	position, ok := s.seams.position(after)
	switch {
	case s.phase == phaseForgotten:
		s.mu.Unlock()
		return Page{}, nil, ErrUnknown
	case !ok || position > last:
		s.mu.Unlock()
		return Page{}, nil, ErrAhead
	case position > to:
		held = r.wait()
		s.mu.Unlock()
		return Page{}, held, nil
	}
	p.Ended = s.phase == phaseEnded && to == last
	if !p.Ended {
		p.More = r.wait()
	}
	v := s.section()
	s.mu.Unlock()
	clear(r.events) // a waiting reader must not keep old text alive
	r.events = v.merged(r.events[:0], position, to, MaxMerged)
	p.Events = r.events
	return p, nil, nil
}

// Closing implements Reader.
func (r *memoryReader) Closing(context.Context) (Event, error) {
	s := r.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.phase == phaseForgotten:
		return Event{}, ErrUnknown
	case s.phase != phaseEnded, s.held && s.shown < s.last():
		return Event{}, ErrOpen
	default:
		return s.rest[len(s.rest)-1], nil
	}
}
