package observer

import "sync/atomic"

// Shield returns f behind a shield. A panic of Note goes to caught, which runs on the goroutine that
// noted the event and can print its stack; it does not reach the caller of Note. Close waits for
// events that other goroutines are noting. Events after Close are dropped, except Unreceived.
func Shield(f Flow, caught func(v any)) Flow {
	return &shield{Flow: f, caught: caught, idle: make(chan struct{}, 1)}
}

// Unshielded returns the Flow behind a shield, or f if it has none.
func Unshielded(f Flow) Flow {
	if s, ok := f.(*shield); ok {
		return s.Flow
	}
	return f
}

// closed is the bit of state that Close sets.
const closed = 1 << 32

// A shield is the Flow that Shield returns.
type shield struct {
	Flow
	caught func(v any)
	state  atomic.Int64  // the number of calls of Note that have not returned; and closed
	idle   chan struct{} // capacity 1: a call of Note has returned after Close
}

// Note implements Flow.
func (s *shield) Note(e Event) {
	defer s.noted()
	if s.state.Add(1) < closed || e.Kind == Unreceived {
		s.Flow.Note(e)
	}
}

func (s *shield) noted() {
	if v := recover(); v != nil {
		s.caught(v)
	}
	if s.state.Add(-1) == closed {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

// Close implements Flow.
func (s *shield) Close() {
	for n := s.state.Or(closed) | closed; n > closed; n = s.state.Load() {
		<-s.idle
	}
	s.Flow.Close()
}
