package leave

import (
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// firstReader is how long a stream with policy Cancel or Drain waits for its first reader.
	firstReader = 30 * time.Second
	// elsewhere is how long a reader of another instance counts as present after it was last seen.
	elsewhere = 3 * time.Second
	// origin is the origin of the ending: the reader that has left.
	origin = "client"
)

// A Stream has the functions through which a Watch acts on its stream.
type Stream struct {
	// Stop ends the stream. It is not called after End, but a call may still be running then.
	Stop func(cause *streamerr.Error)
	// Drop drops the stream's past and future events; nil if none are kept. It may be called after
	// End, and more than once.
	Drop func()
	// Seen returns how long ago a reader of another instance read the stream; ok is false if there
	// was no such reader. A nil Seen means that there are no other instances.
	Seen func() (ago time.Duration, ok bool)
}

// A Watch counts the readers of one stream, and enforces its policy when there are none. If the
// policy does not keep events, the Watch also drops them after the stream's end, when the last
// reader has left. All methods are safe for concurrent use.
type Watch struct {
	policy Policy
	stream Stream

	mu      sync.Mutex // guards the following fields
	readers int
	begun   bool             // there has been a reader
	cause   *streamerr.Error // why the last reader has left
	timer   *time.Timer
	over    bool
}

// New watches a stream without a reader. The caller calls End when the stream has ended.
func New(p Policy, s Stream) *Watch {
	w := &Watch{policy: p, stream: s}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Kind != Detach && (p.Kind != Drain || s.Drop != nil) {
		w.await(w.patience())
	}
	return w
}

// drops reports whether the policy drops the stream's events.
func (w *Watch) drops() bool { return !w.policy.Keeps() && w.stream.Drop != nil }

// patience returns how long the stream may go unread. mu is held.
func (w *Watch) patience() time.Duration {
	switch {
	case w.policy.Kind == Linger:
		return w.policy.For
	case w.begun:
		return 0
	default:
		return firstReader
	}
}

// await checks after d whether there is a reader. mu is held.
func (w *Watch) await(d time.Duration) { w.timer = time.AfterFunc(d, w.unread) }

// rest cancels the check. mu is held.
func (w *Watch) rest() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// Enter counts a reader. The reader calls leave when it has left, with the cause, or with nil if it
// has read the ending. Only the first call counts. leave does not block while the stream runs.
func (w *Watch) Enter() (leave func(cause *streamerr.Error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readers++
	w.begun = true
	w.rest()
	var once sync.Once
	return func(cause *streamerr.Error) { once.Do(func() { w.left(cause) }) }
}

func (w *Watch) left(cause *streamerr.Error) {
	w.mu.Lock()
	w.readers--
	ending := cause == nil && !w.over // the run is about to call End, which applies the policy
	if w.readers > 0 || ending {
		w.mu.Unlock()
		return
	}
	w.cause = cause
	act := w.policy.Kind == Cancel || w.policy.Kind == Drain
	switch {
	case w.over:
	case w.policy.Kind == Linger:
		w.await(w.policy.For)
	case act && w.stream.Seen != nil: // Seen may ask over a network, and the caller may carry other streams
		w.await(0)
		act = false
	}
	w.mu.Unlock()
	if act {
		w.unread()
	}
}

// unread ends or drops the stream, unless it has a reader after all.
func (w *Watch) unread() {
	var ago time.Duration
	var read bool
	if w.stream.Seen != nil {
		ago, read = w.stream.Seen() // Seen may ask over a network, so mu is not held
	}
	w.mu.Lock()
	if w.readers > 0 || w.over && !w.drops() {
		w.mu.Unlock()
		return
	}
	if bound := max(w.patience(), elsewhere); read && ago < bound {
		w.await(bound - ago)
		w.mu.Unlock()
		return
	}
	drop := w.over || w.policy.Kind == Drain
	cause := w.cause
	if patience := w.patience(); patience > 0 {
		cause = &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(origin), Message: "the stream has had no reader for " + patience.String()}
	}
	w.mu.Unlock()
	switch {
	case !drop:
		w.stream.Stop(cause)
	case w.stream.Drop != nil:
		w.stream.Drop()
	}
}

// End records that the stream has ended. If the policy drops the stream's events, that happens now,
// or when the last reader has left. A stream that has not had a reader waits for the rest of the
// time for its first reader.
func (w *Watch) End() {
	w.mu.Lock()
	w.over = true
	waits := w.drops() && !w.begun
	if !waits {
		w.rest()
	}
	drop := w.drops() && w.begun && w.readers == 0
	w.mu.Unlock()
	if drop {
		w.unread()
	}
}
