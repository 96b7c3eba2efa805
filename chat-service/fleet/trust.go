package fleet

import (
	"sync"
	"time"
)

const (
	// ejectAfter is how many failures in a row it takes until a worker is left alone for a while.
	ejectAfter = 3
	// ejectFor is how long the first time; twice as long with each further failure, up to ejectMax.
	ejectFor = time.Second
	ejectMax = 30 * time.Second
)

// A trust is what its streams say of a worker, beside what it says itself. It is the circuit breaker of the fleet, and leans
// on the probes: a failed stream opens it and has the worker probed at once, and a probe that succeeds half-opens it. A worker
// that keeps answering probes and keeps losing streams is left alone longer and longer. A stream that the engine failed does
// not count, for the request may be to blame. The zero value trusts.
type trust struct {
	mu       sync.Mutex // guards the following fields
	doubted  bool       // since a stream failed or a probe was late; until a probe succeeds
	failures int        // in a row
	until    time.Time  // no probe counts before
}

// failed notes that the worker has lost a stream. Streams that are lost together are one failure.
func (t *trust) failed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.doubted {
		return
	}
	t.doubted = true
	if t.failures++; t.failures >= ejectAfter {
		t.until = time.Now().Add(min(ejectFor<<min(t.failures-ejectAfter, 10), ejectMax))
	}
}

// late notes that the worker has not answered a probe in time, which is no failure yet.
func (t *trust) late() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubted = true
}

// delivered notes that the worker has given a stream something.
func (t *trust) delivered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = 0
}

// answered notes that a probe has succeeded.
func (t *trust) answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !time.Now().Before(t.until) {
		t.doubted = false
	}
}

// renew forgets everything: the worker was away, and is a new process as far as anybody knows.
func (t *trust) renew() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubted, t.failures, t.until = false, 0, time.Time{}
}

func (t *trust) holds() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.doubted
}

// Trusted reports whether there is no doubt about the worker.
func (w *Worker) Trusted() bool { return w.trust.holds() }

// Delivered notes that the worker has given a stream something.
func (w *Worker) Delivered() { w.trust.delivered() }
