package leave

import (
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// firstReader is how long a stream whose policy is Cancel or Drain waits for its first reader.
	firstReader = 30 * time.Second
	// elsewhere is how long after it was last seen a reader of another instance counts as there.
	elsewhere = 3 * time.Second
	// origin is who has gone.
	origin = "client"
)

// A Stream is what a Watch needs of its stream.
type Stream struct {
	// Stop ends the stream. It is not called after End, but may still run then.
	Stop func(cause *streamerr.Error)
	// Drop drops what the stream has said and will say; nil if nothing is kept. It may be called after End, and more than once.
	Drop func()
	// Seen returns how long ago a reader of another instance read the stream; ok is false if there was none. A nil Seen knows none.
	Seen func() (ago time.Duration, ok bool)
}

// A Watch counts the readers of one stream, and carries out its policy when there are none. Where the policy does not keep what the
// stream says, the Watch also drops it after the stream's end, when the last reader has left. All methods are safe for concurrent use.
type Watch struct {
	policy Policy
	stream Stream

	mu      sync.Mutex // guards the following fields
	readers int
	begun   bool             // there was a reader
	cause   *streamerr.Error // why the last one has left
	timer   *time.Timer
	over    bool
}

// New watches a stream that nobody reads yet. The caller calls End when it has ended.
func New(p Policy, s Stream) *Watch {
	w := &Watch{policy: p, stream: s}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Kind != Detach && (p.Kind != Drain || s.Drop != nil) {
		w.await(w.patience())
	}
	return w
}

// drops reports whether the policy drops what the stream says.
func (w *Watch) drops() bool { return !w.policy.Keeps() && w.stream.Drop != nil }

// patience is how long the stream may go unread. mu is held.
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

// await looks after d whether somebody reads. mu is held.
func (w *Watch) await(d time.Duration) { w.timer = time.AfterFunc(d, w.unread) }

// rest looks no more. mu is held.
func (w *Watch) rest() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// Enter counts a reader. The reader calls leave when it has left, with the cause, or with nil if it has read the ending. Only the first
// call counts.
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
	ending := cause == nil && !w.over // the run is about to call End, which does the rest
	if w.readers > 0 || ending {
		w.mu.Unlock()
		return
	}
	w.cause = cause
	if w.policy.Kind == Linger && !w.over {
		w.await(w.policy.For)
	}
	act := w.policy.Kind == Cancel || w.policy.Kind == Drain
	w.mu.Unlock()
	if act {
		w.unread()
	}
}

// unread ends or drops the stream, unless there is a reader after all.
func (w *Watch) unread() {
	var ago time.Duration
	var read bool
	if w.stream.Seen != nil {
		ago, read = w.stream.Seen() // may ask over a network, so without mu
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
		cause = &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(origin), Message: "nobody has read the stream for " + patience.String()}
	}
	w.mu.Unlock()
	switch {
	case !drop:
		w.stream.Stop(cause)
	case w.stream.Drop != nil:
		w.stream.Drop()
	}
}

// End notes that the stream has ended. If the policy drops what the stream has said, that happens now, or when the last reader has left.
// A stream that had no reader yet keeps what is left of the time for its first reader.
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
