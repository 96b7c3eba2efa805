package fleet

import (
	"context"
	"io"
	"log/slog"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// Pretend makes workers the members of the fleet without dialing or probing them, for tests of the packages above.
// The state of a worker is set by Say.
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
	w := &Worker{closed: func() {}, conn: io.NopCloser(nil), starter: func(string) Starter { return engine.Starter() }, probeNow: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler)}
	w.name.Store(&name)
	return w
}

// PretendStarter gives a pretended worker a Starter in place of its engine.
func (w *Worker) PretendStarter(starter Starter) {
	w.starter = func(string) Starter { return starter }
}

// Say sets the result of a worker's probe: its info, or nil if it is not healthy.
func (w *Worker) Say(info *llmv1.WorkerInfo) {
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

// PretendKVEvents gives a pretended worker KV events.
func (w *Worker) PretendKVEvents(events func(context.Context) (KVEvents, error)) { w.events = events }
