package world

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/e2e/simulation/schedule"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/sim"
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Worker is one run of llm-worker. Its engine is that of package sim, with injected faults.
type Worker struct {
	*Process
	Loop  *batch.Loop
	fault atomic.Pointer[engineFault]
}

// An engineFault affects the next item of each stream, for a short time.
type engineFault struct {
	kind  schedule.Kind
	until time.Time
	lasts time.Duration // of a hang
}

// contextLength is enough for the longest prompt.
const contextLength = 1 << 15

// A modelDescription is the part of a model that workers announce.
type modelDescription struct {
	vocabulary *sim.Vocabulary
	size       int
	eos        []uint32
}

// tokens is the vocabulary that all workers share. It is immutable.
var tokens = sync.OnceValues(func() (*modelDescription, error) {
	m, err := lexicon.Load(whencetiny.FS())
	if err != nil {
		return nil, err
	}
	return &modelDescription{sim.NewVocabulary(m.ContextLength, m.VocabSize, m.EOS, m.Tokenizer), m.VocabSize, m.EOS}, nil
})

// StartWorker starts an llm-worker in place of the previous one.
func (w *World) StartWorker(i int) {
	d, err := tokens()
	if err != nil {
		panic(err) // cannot fail: the model is embedded
	}
	name := WorkerName(i)
	p, ctx, log := w.process(name, WorkerAddr(i))
	held := &kvevents.Hub{}
	model := sim.New(d.vocabulary, sim.Options{Answer: 40, PrefillToken: 10 * time.Microsecond, ContextLength: contextLength}, held)
	k := &Worker{Process: p, Loop: batch.New(model, batch.Options{MaxRunning: maxRunning, MaxQueued: maxQueued, Model: whencetiny.Name, Log: log})}
	s := worker.NewServer(name, whencetiny.Name, k.generate, func() *llmv1.WorkerInfo {
		return &llmv1.WorkerInfo{
			Engine: worker.Sim, ContextLength: uint32(model.ContextLength()), VocabSize: uint32(d.size), EosTokenIds: d.eos, Continues: true,
			KvBlockSize: uint32(model.Block()), Load: k.Loop.Load(),
			Capabilities: &llmv1.Capabilities{Prompt: llmv1.Form_FORM_TOKEN_IDS, Answer: llmv1.Form_FORM_TOKEN_IDS, Sampling: sample.Fields()},
		}
	}, log)
	s.Register(p.Host)
	p.Host.Listen()
	p.Hop = s.Hop()
	s.SetHealthy(true)
	w.mu.Lock()
	w.workers[i] = k
	w.mu.Unlock()
	looping, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { k.Loop.Run(looping) })
	w.running.Go(func() {
		defer close(p.ended)
		<-ctx.Done()
		s.Drain(ctx, Grace)
		p.Host.Stop()
		stop()
		running.Wait()
	})
}

// Break injects an engine fault into the next item of each stream of the worker, for a short time.
// lasts is the length of a hang or a deafness.
func (k *Worker) Break(kind schedule.Kind, lasts time.Duration) {
	k.fault.Store(&engineFault{kind: kind, until: time.Now().Add(FaultLasts), lasts: lasts})
}

// generate is the engine.
func (k *Worker) generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		for out, err := range k.Loop.Generate(ctx, req) {
			if f := k.fault.Load(); f != nil && err == nil && time.Now().Before(f.until) {
				if err := f.strike(ctx); err != nil {
					yield(nil, err)
					return
				}
			}
			if !yield(out, err) {
				return
			}
		}
	}
}

// strike applies the fault to a stream, and returns the reason of its end, or nil if the stream
// continues.
func (f *engineFault) strike(ctx context.Context) error {
	switch f.kind {
	case schedule.EnginePanics:
		panic("the simulated engine panics")
	case schedule.EngineIsDeaf:
		time.Sleep(min(f.lasts, Deafest))
		return stream.Cause(ctx)
	case schedule.EngineHangs:
		timer := time.NewTimer(f.lasts)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-stream.Stopping(ctx):
			return stream.Cause(ctx)
		}
	default:
		e := streamerr.New(streamerr.EngineFailed, "the simulated engine fails")
		e.Path = streamerr.NewPath("engine")
		return e
	}
}
