package fleet

import (
	"sync"
	"time"
)

// A probeHooks holds the functions that wait for the next probe of a worker. The zero value is
// empty.
type probeHooks struct {
	mu   sync.Mutex // guards the following field
	next []func()
}

// take empties the hooks when a probe begins. call calls them, each on its own goroutine; it must
// be called when the probe is over.
func (h *probeHooks) take() (call func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.next
	h.next = nil
	return func() {
		for _, f := range taken {
			go f()
		}
	}
}

// AwaitRecovery reports whether the worker, which has failed a stream at since, may take streams
// after its next probe. If so, f is called on its own goroutine after the first probe that begins
// from now on; f is not called if the worker leaves the fleet before. AwaitRecovery returns false if
// the worker has not answered a probe that began after since: the worker is gone, and nobody should
// wait for it.
func (w *Worker) AwaitRecovery(since time.Time, f func()) bool {
	last := w.probed.Load()
	if last == nil {
		return false
	}
	unknown := last.began.Before(since)
	if !last.answers && !unknown {
		return false
	}
	w.hooks.mu.Lock()
	w.hooks.next = append(w.hooks.next, f)
	w.hooks.mu.Unlock()
	if unknown {
		w.Probe()
	}
	return true
}
