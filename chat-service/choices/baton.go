package choices

import (
	"sync"

	"github.com/whence-dev/whence/pkg/stream"
)

// A baton is a lock that choices get in the order of arrival, so that no choice starves. A choice
// waits for it while a slow reader has a message; this is the backpressure on the choice's worker.
// Without contention it costs no more than a mutex. The zero value is free.
type baton struct {
	mu      sync.Mutex // guards the following fields
	held    bool
	waiting []signal // bounded by the number of choices
}

// A signal wakes a choice that waits for the baton. It has capacity 1.
type signal chan struct{}

// take waits for the baton. ready is the choice's own signal. on, which carries the choice's message, is
// told before a wait.
func (b *baton) take(ready signal, on *stream.Loop) {
	b.mu.Lock()
	if !b.held {
		b.held = true
		b.mu.Unlock()
		return
	}
	b.waiting = append(b.waiting, ready)
	b.mu.Unlock()
	on.Wait()
	<-ready
}

// give passes the baton to the next choice.
func (b *baton) give() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.held = false
		return
	}
	next := b.waiting[0]
	b.waiting = append(b.waiting[:0], b.waiting[1:]...)
	next <- struct{}{}
}
