package fleet

import (
	"context"
	"io"
	"log/slog"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

// Pretend makes workers the members of the fleet without dialing or probing them, for tests of
// other packages. Say sets the state of a worker.
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

// Pretended returns a worker for Pretend, whose engine is a loop. It is unhealthy until Say.
func Pretended(name string, engine stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse]) *Worker {
	w := &Worker{closed: func() {}, conn: io.NopCloser(nil), engine: func(string) Engine { return stream.Push(engine) }, probeNow: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler)}
	w.name.Store(&name)
	return w
}

// PretendEngine replaces the engine of a pretended worker.
func (w *Worker) PretendEngine(engine Engine) {
	w.engine = func(string) Engine { return engine }
}

// Say sets the result of a worker's probe: its info, or nil if it is unhealthy.
func (w *Worker) Say(info *llmv1.WorkerInfo) {
	defer w.hooks.take()()
	now := report{began: time.Now()}
	if info != nil {
		now = report{info: info, said: now.began, began: now.began, answers: true}
		w.breaker.reset()
	} else if last := w.probed.Load(); last != nil {
		now.info, now.said = last.info, last.said
	}
	w.probed.Store(&now)
	w.setInfo(info)
}

// Answer simulates a successful probe of a healthy worker.
func (w *Worker) Answer() {
	defer w.hooks.take()()
	w.breaker.answered()
}

// AnswerNotReady simulates a probe that a worker has answered although it takes no streams.
func (w *Worker) AnswerNotReady() {
	defer w.hooks.take()()
	w.report(time.Now(), nil, notReadyError{w.Name(), "it is loading"})
	w.setInfo(nil)
}

// PretendEmbeds gives a pretended worker an embedding engine.
func (w *Worker) PretendEmbeds(engine EmbedEngine) {
	w.embed = func(string) EmbedEngine { return engine }
}

// PretendScores gives a pretended worker a scoring engine.
func (w *Worker) PretendScores(engine ScoreEngine) {
	w.score = func(string) ScoreEngine { return engine }
}

// PretendKVEvents gives a pretended worker KV events.
func (w *Worker) PretendKVEvents(events func(context.Context) (KVEvents, error)) { w.events = events }
