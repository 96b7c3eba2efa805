package observer

import (
	"sync/atomic"

	"github.com/whence-dev/whence/internal/prefetch"
)

// Shield wraps f. It passes a panic of Note to caught, instead of to the caller of Note. caught
// runs on the goroutine that noted the event and can log its stack. Close waits for running calls
// of Note. Events after Close are dropped, except those of calls that outlive the
// stream (see Flow.Close).
func Shield(f Flow, caught func(v any)) Flow {
	return &shield{Flow: f, caught: caught, idle: make(chan struct{}, 1)}
}

// Unshielded returns the Flow that Shield has wrapped, or f if it is not wrapped.
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
	state  atomic.Int64  // the number of running calls of Note, and the bit closed
	idle   chan struct{} // capacity 1; receives when the last call of Note returns after Close
}

// Note implements Flow.
func (s *shield) Note(e Event) {
	defer s.noted()
	if s.state.Add(1) < closed || e.Kind.late() {
		s.Flow.Note(e)
	}
}

// late reports whether events of this kind may come after Close.
func (k Kind) late() bool { return k == Unreceived || k == Consumed || k == CalleeGone }

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

// Touched implements prefetch.Toucher.
func (s *shield) Touched(to *prefetch.List) {
	prefetch.Touched(s.Flow, to)
	to.Add(prefetch.Of(s))
}

// Close implements Flow.
func (s *shield) Close() {
	for n := s.state.Or(closed) | closed; n > closed; n = s.state.Load() {
		<-s.idle
	}
	s.Flow.Close()
}
