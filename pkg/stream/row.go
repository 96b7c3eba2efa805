package stream

import "sync"

// A Row starts one stream after another for one Reader: a retry, a restart, a failover, the turns of a
// conversation. A stream may end before its engine has returned, and its End may start the next stream:
// the Row then starts that stream when the engine has returned. So there is neither a recursion, nor are
// two engines started at once. The zero value is ready.
type Row struct {
	mu       sync.Mutex // guards the following fields; not held during a start
	starting bool
	next     func() // nil if there is none
}

// Then calls start, unless a goroutine is in Then: that goroutine then calls start. The stream that start
// starts must end before the next Then.
func (r *Row) Then(start func()) {
	r.mu.Lock()
	if r.starting {
		r.next = start
		r.mu.Unlock()
		return
	}
	r.starting = true
	r.mu.Unlock()
	returned := false
	defer func() {
		if !returned { // start has panicked or exited: no other stream follows
			r.mu.Lock()
			r.starting = false
			r.mu.Unlock()
		}
	}()
	for start != nil {
		start()
		r.mu.Lock()
		start, r.next = r.next, nil
		r.starting = start != nil
		r.mu.Unlock()
	}
	returned = true
}
