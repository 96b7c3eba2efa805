package choices

import (
	"sync"

	"github.com/whence-dev/whence/pkg/rpc/loop"
)

// A baton is a lock that passes from choice to choice in the order of arrival, so that no choice starves. A choice that
// waits for it waits for a slow reader: that is the backpressure on its worker. Without a wait it costs no more than a
// mutex. The zero value is free.
type baton struct {
	mu      sync.Mutex // guards the following fields
	held    bool
	waiting []signal // bounded by the number of choices
}

// A signal wakes a choice that waits for the baton. Its capacity is 1.
type signal chan struct{}

// take waits for the baton. ready is the choice's own signal. carrier is told of a wait.
func (b *baton) take(ready signal, carrier *loop.Carrier) {
	b.mu.Lock()
	if !b.held {
		b.held = true
		b.mu.Unlock()
		return
	}
	b.waiting = append(b.waiting, ready)
	b.mu.Unlock()
	carrier.Wait()
	<-ready
}

// give passes the baton on.
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
