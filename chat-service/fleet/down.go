package fleet

import (
	"sync"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// A downSignal tells streams that their worker is no longer healthy. The zero value is not healthy.
type downSignal struct {
	mu sync.Mutex    // guards ch
	ch chan struct{} // closed while the worker is not healthy; nil until Down is called or the worker becomes healthy
}

// Down returns a channel that is closed as soon as the worker is not healthy: its health probes fail, or it says that it
// takes no streams.
func (w *Worker) Down() <-chan struct{} {
	w.down.mu.Lock()
	defer w.down.mu.Unlock()
	if w.down.ch == nil {
		w.down.ch = make(chan struct{})
		close(w.down.ch)
	}
	return w.down.ch
}

// setInfo stores the worker's info; nil if the worker is not healthy.
func (w *Worker) setInfo(info *llmv1.WorkerInfo) {
	w.down.mu.Lock()
	defer w.down.mu.Unlock()
	was := w.info.Swap(info)
	switch {
	case info != nil && was == nil:
		w.down.ch = make(chan struct{})
	case info == nil && was != nil:
		close(w.down.ch)
	}
}
