package replay

// An Outbox holds the events of one stream until they are written to a server that other instances
// read. Readers in this process see an event only once it is written, so that they are never ahead
// of the server. If the server is down, Release lets readers see everything at once. One goroutine
// uses the outbox.
type Outbox struct{ stream *memoryStream }

// Outbox returns the outbox of the stream, and hides all later events from readers until Show or
// Release. It is called once.
func (w *Writer) Outbox() *Outbox {
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.shown, s.ready = true, s.last(), make(chan struct{}, 1)
	return &Outbox{s}
}

// Shipped reports whether the outbox of the stream is empty: all events are written, and so are
// shown to readers.
func (w *Writer) Shipped() bool {
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held && s.shown == s.last()
}

// Continued reports whether the stream began here, or has events of this instance.
func (w *Writer) Continued() bool {
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.seams)
	return n == 0 || s.last() > s.seams[n-1]
}

// Head returns the head of the stream.
func (o *Outbox) Head() Head { return o.stream.writer.Head() }

// Seams returns the seams of the stream's log.
func (o *Outbox) Seams() Seams { return o.stream.seams }

// Ready receives a value after an event was appended or the stream was forgotten.
func (o *Outbox) Ready() <-chan struct{} { return o.stream.ready }

// Unwritten appends to events at most n of the deltas after the event with number after, and the
// other events if no delta is left. Each delta is an event of its own, with its note. closing
// reports that the closing event is among them. over reports that no event is left, now or later.
func (o *Outbox) Unwritten(events []Event, after uint64, n int) (unwritten []Event, closing, over bool) {
	s := o.stream
	s.mu.Lock()
	last := s.last()
	position, _ := s.seams.position(after)
	position = min(position, last)
	over = s.phase == phaseForgotten || s.phase == phaseEnded && position == last
	if over {
		s.mu.Unlock()
		return events, false, true
	}
	v := s.section()
	position = max(position, v.dropped)
	to := position + uint64(n)
	if to >= s.deltas() {
		to = last // the events after the deltas are written together
	}
	unwritten = v.merged(events, position, to, 0)
	for i := range unwritten[len(events):] {
		if e := &unwritten[len(events)+i]; e.Kind == Delta {
			e.Note = s.notes.of(int(position-v.dropped) + i)
		}
	}
	s.mu.Unlock()
	return unwritten, len(unwritten) > 0 && unwritten[len(unwritten)-1].Kind.Closing(), false
}

// Show lets readers see the events up to number upto. After Release, it holds readers back again
// once the server has every event.
func (o *Outbox) Show(upto uint64) {
	s := o.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == phaseForgotten {
		return
	}
	position, _ := s.seams.position(upto)
	position = min(position, s.last())
	if s.held || position == s.last() {
		s.held, s.shown = true, position
	}
	s.wakeReaders()
}

// Release lets readers see every event, now and later.
func (o *Outbox) Release() {
	s := o.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held && s.phase != phaseForgotten {
		s.held = false
		s.wakeReaders()
	}
}
