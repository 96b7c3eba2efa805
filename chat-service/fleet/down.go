package fleet

import (
	"sync"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// A downSignal notifies streams when their worker becomes unhealthy. The zero value is unhealthy.
type downSignal struct {
	mu    sync.Mutex // guards the following field, and changes of the worker's info
	first *downHook  // head of the list of hooks; nil while the worker is unhealthy
}

// A downHook is called once, when the worker becomes unhealthy.
type downHook struct {
	f          func()
	next, prev *downHook
	done       bool // no longer in the list
}

// AfterDown calls f on its own goroutine as soon as the worker is unhealthy: its health probes
// fail, or it reports that it takes no streams. undo prevents the call unless it has begun.
func (w *Worker) AfterDown(f func()) (undo func()) {
	w.down.mu.Lock()
	defer w.down.mu.Unlock()
	if w.info.Load() == nil {
		go f()
		return func() {}
	}
	h := &downHook{f: f, next: w.down.first}
	if h.next != nil {
		h.next.prev = h
	}
	w.down.first = h
	return func() { w.down.remove(h) }
}

// remove takes a hook off the list.
func (d *downSignal) remove(h *downHook) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.done {
		return
	}
	h.done = true
	if h.next != nil {
		h.next.prev = h.prev
	}
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		d.first = h.next
	}
}

// setInfo stores the worker's info, or nil if the worker is unhealthy.
func (w *Worker) setInfo(info *llmv1.WorkerInfo) {
	w.down.mu.Lock()
	defer w.down.mu.Unlock()
	w.info.Store(info)
	if info != nil {
		return
	}
	for h := w.down.first; h != nil; h = h.next {
		h.done = true
		go h.f()
	}
	w.down.first = nil
}
