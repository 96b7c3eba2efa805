package beside

import (
	"context"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

const (
	// DefaultMaxRunning is the maximum number of streams at a server that does not report that it runs
	// more: as many as vLLM runs by default. The bound keeps the connections to the server few.
	DefaultMaxRunning = 256

	// maxSlots bounds the slots that a server may report.
	maxSlots = 1 << 16
)

// A ServerLoad is the server's own report of its load, by all of its clients.
type ServerLoad struct {
	Running, Waiting   int    // requests
	Slots              int    // requests that the server runs at a time; 0 if it does not report them
	KVUsed, KVTotal    uint64 // positions of KV cache, in tokens; 0 if the server does not report them
	UnreadPromptTokens uint64 // of waiting requests
	Asleep             bool   // it answers nothing until its operator wakes it
	// Done grows while the server works for any client; 0 if the server does not report such a number.
	Done float64
}

// A LoadReader asks the server for its load. A server that does not report it is used all the same.
// It is called by one goroutine at a time, which is not the one that calls Look.
type LoadReader func(ctx context.Context) (*ServerLoad, error)

// A loadReport is the server's load as of the last probe.
type loadReport struct {
	ServerLoad
	others int // requests of other clients
}

// ReadLoad makes Watch ask for the server's load after every probe. Call it before Watch.
func (e *Engine) ReadLoad(read LoadReader) { e.readLoad = read }

// readLoads updates the load after each probe until probed is closed. It runs beside the probes, because a
// server that reports its load slowly may be healthy.
func (e *Engine) readLoads(ctx context.Context, probed <-chan struct{}) {
	for range probed {
		if ctx.Err() == nil {
			e.updateLoad(ctx)
		}
	}
}

// updateLoad asks the server for its load, or forgets the last report if the server does not answer.
func (e *Engine) updateLoad(ctx context.Context) {
	if e.readLoad == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	before := e.running.Load()
	load, err := e.readLoad(ctx)
	if err != nil {
		e.reported.Store(nil)
		return
	}
	if load.Done != e.done {
		e.done = load.Done
		e.answers.Add(1)
	}
	if load.Slots > 0 {
		e.slots.Store(int64(load.Slots)) // kept when a later report fails
	}
	// Whether the server had counted our streams that came or went meanwhile is not known.
	ours := int(max(before, e.running.Load()))
	e.reported.Store(&loadReport{*load, max(0, load.Running+load.Waiting-ours)})
}

// limits returns the number of requests that the server runs at a time, or 0 if it is unknown, and the
// maximum number of streams.
func (e *Engine) limits() (slots, streams int) {
	slots = int(e.slots.Load())
	if up := e.upstream.Load(); up != nil && up.Slots > 0 {
		slots = up.Slots
	}
	slots = min(slots, maxSlots)
	if e.opts.MaxRunning > 0 {
		return slots, e.opts.MaxRunning
	}
	return slots, max(slots, DefaultMaxRunning)
}

// Load returns the load of the engine: the streams of this engine as of now and, if the server reports
// its load, the requests of other clients and the KV cache as of the last probe. The limits are the server's
// slots and the streams that may wait for one there, or all streams if the server does not report its slots.
func (e *Engine) Load() *llmv1.Load {
	slots, streams := e.limits()
	load := &llmv1.Load{Running: uint32(e.running.Load()), MaxRunning: uint32(streams)}
	up, reported := e.upstream.Load(), e.reported.Load()
	if slots > 0 && slots < streams {
		load.MaxRunning, load.MaxQueued = uint32(slots), uint32(streams-slots)
	}
	if reported == nil || up == nil {
		return load
	}
	all := load.GetRunning() + uint32(reported.others)
	load.Queued = min(uint32(reported.Waiting), all)
	load.Running = all - load.GetQueued()
	load.KvUsedTokens, load.KvTotalTokens, load.PrefillTokens = reported.KVUsed, reported.KVTotal, reported.UnreadPromptTokens
	return load
}
