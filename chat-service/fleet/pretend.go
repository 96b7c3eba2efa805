package fleet

import (
	"io"
	"log/slog"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// Pretend makes workers that nobody dials or probes the members of the fleet, for tests of what is built on it. Each is as it last
// said by Say.
func (f *Fleet) Pretend(workers ...*Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, w := range workers {
		w.slot, w.cooled = i, f.opts.Cooled
		f.slots[i] = w
		if f.opts.Log != nil {
			w.log = f.opts.Log
		}
	}
	f.workers.Store(&workers)
}

// Pretended returns a worker for Pretend, which has never been healthy.
func Pretended(name string, engine Engine) *Worker {
	w := &Worker{closed: func() {}, conn: io.NopCloser(nil), engine: func(string) Engine { return engine }, probeNow: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler)}
	w.name.Store(&name)
	return w
}

// Say is what a probe of a worker that was away finds: what it says of itself, or nil if it is not healthy.
func (w *Worker) Say(info *workerv1.InfoResponse) {
	if info != nil {
		w.probed.Store(&report{info: info, said: time.Now()})
		w.breaker.reset()
	}
	w.setInfo(info)
}

// Answer is a probe of a healthy worker that succeeds.
func (w *Worker) Answer() { w.breaker.answered() }

// PretendEmbeds gives a pretended worker an engine for vectors.
func (w *Worker) PretendEmbeds(engine EmbedEngine) {
	w.embed = func(string) EmbedEngine { return engine }
}
