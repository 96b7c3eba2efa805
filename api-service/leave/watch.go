package leave

import (
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// firstReader is how long a stream whose policy is Cancel waits for its first reader.
	firstReader = 30 * time.Second
	// elsewhere is how long after it was last seen a reader of another instance counts as there.
	elsewhere = 3 * time.Second
	// origin is who has gone.
	origin = "client"
)

// A Stream is what a Watch needs of its stream. Its functions are not called after End, but may still run then.
type Stream struct {
	// Stop ends it.
	Stop func(cause *streamerr.Error)
	// Drop drops what it has said and will say; nil if nothing is kept.
	Drop func()
	// Seen returns how long ago it was read elsewhere; ok is false if it was not. nil is nowhere.
	Seen func() (ago time.Duration, ok bool)
}

// A Watch counts the readers of one stream, and carries out its policy when there are none. All methods are safe for
// concurrent use.
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
	if p.Kind == Cancel || p.Kind == Linger {
		w.await(w.patience())
	}
	return w
}

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

// Enter notes a reader, who calls leave when it has left, and says why. Only the first call counts.
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
	if w.readers > 0 || w.over {
		w.mu.Unlock()
		return
	}
	w.cause = cause
	if w.policy.Kind == Linger {
		w.await(w.policy.For)
	}
	w.mu.Unlock()
	switch {
	case w.policy.Kind == Cancel:
		w.unread()
	case w.policy.Kind == Drain && w.stream.Drop != nil:
		w.stream.Drop()
	}
}

// unread ends the stream, unless somebody reads it after all.
func (w *Watch) unread() {
	var ago time.Duration
	var read bool
	if w.stream.Seen != nil {
		ago, read = w.stream.Seen() // may ask over a network, so without mu
	}
	w.mu.Lock()
	if w.readers > 0 || w.over {
		w.mu.Unlock()
		return
	}
	if bound := max(w.patience(), elsewhere); read && ago < bound {
		w.await(bound - ago)
		w.mu.Unlock()
		return
	}
	cause := w.cause
	if patience := w.patience(); patience > 0 {
		cause = &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(origin), Message: "nobody has read the stream for " + patience.String()}
	}
	w.mu.Unlock()
	w.stream.Stop(cause)
}

// End ends the watch.
func (w *Watch) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.rest()
}
