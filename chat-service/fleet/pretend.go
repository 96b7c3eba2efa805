package fleet

import (
	"io"
	"log/slog"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// Pretend makes workers that nobody dials or asks the members of the fleet, for tests of what is built on it. Each is as it last
// said by Say.
func (f *Fleet) Pretend(workers ...*Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, w := range workers {
		w.slot = i
		f.slots[i] = w
	}
	f.workers.Store(&workers)
}

// Pretended returns such a worker, which has never been healthy.
func Pretended(name string, engine Engine) *Worker {
	w := &Worker{closed: func() {}, conn: io.NopCloser(nil), engine: func(string) Engine { return engine }, doubt: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler)}
	w.name.Store(&name)
	return w
}

// Say is what a probe finds that begins to trust the worker again: what it says of itself, or nil if it is not healthy.
func (w *Worker) Say(info *workerv1.InfoResponse) {
	if info != nil {
		w.probed.Store(&report{info: info, said: time.Now()})
		w.trust.renew()
	}
	w.info.Store(info)
}

// PretendEmbeds gives a pretended worker an engine for vectors.
func (w *Worker) PretendEmbeds(engine EmbedEngine) {
	w.embed = func(string) EmbedEngine { return engine }
}
