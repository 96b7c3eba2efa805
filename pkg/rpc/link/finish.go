package link

import (
	"sync"

	"google.golang.org/grpc/metadata"
)

// hooks are functions to call once an event has happened.
type hooks struct {
	happened bool
	waiting  []func()
}

// add makes call call f. If call was called before, add calls f at once. mu guards h; the caller
// does not hold it.
func (h *hooks) add(mu sync.Locker, f func()) {
	mu.Lock()
	happened := h.happened
	if !happened {
		h.waiting = append(h.waiting, f)
	}
	mu.Unlock()
	if happened {
		f()
	}
}

// call calls the functions, and reports whether it is the first call. mu guards h; the caller does
// not hold it.
func (h *hooks) call(mu sync.Locker) (first bool) {
	mu.Lock()
	all := h.waiting
	first = !h.happened
	h.happened, h.waiting = true, nil
	mu.Unlock()
	for _, f := range all {
		f()
	}
	return first
}

// Finish implements loop.Sink.
func (st *serverStream) Finish(err error, trailer metadata.MD) {
	st.mu.Lock()
	md := metadata.Join(st.md, trailer)
	st.mu.Unlock()
	if st.finished.call(&st.mu) {
		st.unhook()
		st.s.Finish(err, md)
	}
}

// OnFinish implements loop.Sink.
func (st *serverStream) OnFinish(f func()) { st.finished.add(&st.mu, f) }

// AfterOver implements loop.Sink.
func (st *serverStream) AfterOver(f func()) (undo func() bool) { return st.over.After(f) }

// Release implements loop.Sink.
func (st *serverStream) Release() { st.released.call(&st.mu) }
