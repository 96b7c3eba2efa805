package replay

// An Outbox holds the events of one stream until they are written to a server that other instances read.
// Readers in this process see an event once it is written, so that they are never ahead of the server.
// If the server is down, Release lets them see everything at once. One goroutine uses the outbox.
type Outbox struct{ stream *memoryStream }

// Outbox returns the outbox of the stream, and hides all events from readers until Show or Release. It
// is called once, before the first event is appended.
func (w *Writer) Outbox() *Outbox {
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.ready = true, make(chan struct{}, 1)
	return &Outbox{s}
}

// Head returns the head of the stream.
func (o *Outbox) Head() Head { return o.stream.head }

// Ready receives a value after an event was appended or the stream was forgotten.
func (o *Outbox) Ready() <-chan struct{} { return o.stream.ready }

// Unwritten appends at most n events, of those that follow the event with number after, to events. Each
// delta is an event of its own. closing reports that the closing event is among them. over reports that
// no event is or will be left.
func (o *Outbox) Unwritten(events []Event, after uint64, n int) (unwritten []Event, closing, over bool) {
	s := o.stream
	s.mu.Lock()
	last := s.last()
	over = s.phase == phaseForgotten || s.phase == phaseEnded && after == last
	v := s.section()
	s.mu.Unlock()
	if over {
		return events, false, true
	}
	after = max(after, v.dropped)
	unwritten = v.merged(events, after, min(last, after+uint64(n)), 0)
	return unwritten, len(unwritten) > 0 && unwritten[len(unwritten)-1].Kind.Closing(), false
}

// Show lets readers see the events up to the one with number upto. After Release, readers are held back
// again once the server has every event.
func (o *Outbox) Show(upto uint64) {
	s := o.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == phaseForgotten {
		return
	}
	if s.held || upto == s.last() {
		s.held, s.shown = true, upto
	}
	s.wakeReaders()
}

// Release lets readers see every event, including those that follow.
func (o *Outbox) Release() {
	s := o.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
}

// Fence ends the stream from outside: Release, and the next append fails with cause.
func (o *Outbox) Fence(cause error) {
	s := o.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
	s.cause = cause
}

// release shows all events. mu is held.
func (s *memoryStream) release() {
	if s.held && s.phase != phaseForgotten {
		s.held = false
		s.wakeReaders()
	}
}
