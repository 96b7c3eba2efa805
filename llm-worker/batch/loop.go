// Package batch turns a model that steps a whole batch into a stream.Sequence: one goroutine owns the
// model, admits sequences, steps them, and delivers each step's tokens to their streams.
//
// The idea is the handle loop of SGLang's TokenizerManager (a map from stream id to state), without
// its faults: a slow reader never slows the batch and never makes memory grow without bound, and an
// abandoned stream leaves no state behind.
package batch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Defaults of Options.
const (
	DefaultMaxRunning = 64
	DefaultMaxQueued  = 256
	DefaultMaxUnread  = 64 << 10
)

// Options are a Loop's limits. A zero field has its default.
type Options struct {
	// MaxRunning is the maximum number of sequences in the batch.
	MaxRunning int
	// MaxQueued is the maximum number of sequences that wait for a place in the batch, or that a
	// Preparer prepares; further ones are refused with OVERLOADED. A negative value means no queue.
	MaxQueued int
	// MaxUnread is the number of tokens that a reader may leave unread before its stream ends with
	// SLOW_READER.
	MaxUnread int
	// Pace is the maximum number of tokens per second per stream; 0 means no limit.
	Pace float64
	// Model is the name that Started carries.
	Model string
	// Observer is called for the events of the loop; nil means none.
	Observer Observer
	// Log receives messages that are not about the ending of a single stream.
	Log *slog.Logger
}

// An Observer receives the events of a Loop. The goroutine of Run calls it and waits for it.
type Observer interface {
	// Admitted is called when a stream gets its place in the batch.
	Admitted(waited time.Duration)
	// Stepped is called after each step with the number of its streams. prefill is true if the step
	// read a prompt: it was the first step of at least one stream, or another step of its prompt.
	Stepped(took time.Duration, streams int, prefill bool)
	// Paused is called when a sequence that a Pauser had paused resumes or leaves.
	Paused(took time.Duration)
}

func (o Options) withDefaults() Options {
	if o.MaxRunning <= 0 {
		o.MaxRunning = DefaultMaxRunning
	}
	switch {
	case o.MaxQueued < 0:
		o.MaxQueued = 0
	case o.MaxQueued == 0:
		o.MaxQueued = DefaultMaxQueued
	}
	if o.MaxUnread <= 0 {
		o.MaxUnread = DefaultMaxUnread
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// A Loop serves streams from one model. Generate (a stream.Sequence) and Embed work only while Run
// runs.
type Loop struct {
	model       Model
	embedder    Embedder    // the model, or nil if it cannot embed
	pauser      Pauser      // the model, or nil if it never pauses a sequence
	interrupter Interrupter // the model, or nil if a step always runs to its end
	opts        Options
	gap         time.Duration // between two tokens of a stream; 0 without a pace
	wake        chan struct{} // capacity 1: a stream has arrived or left

	turnover stream.Turnover

	// Owned by Run.
	batch map[uint64]*sequence // the sequences that have joined
	ids   []uint64
	outs  []Output
	full  *sequence // the sequence that did not fit into the model; nil once memory has become free

	mu      sync.Mutex // guards the following fields
	nextID  uint64
	waiting []*sequence // in order of arrival
	leaving []*sequence // have joined; their readers have left
	// preparing is the number of requests that a Preparer prepares. Each holds a place of the queue.
	preparing int
	running   int // len(batch), for Load
	kvUsed    uint64
	kvTotal   uint64
	closed    error // why the loop takes no more streams
}

// A sequence is one stream in the loop.
type sequence struct {
	id       uint64
	req      *workerv1.TokenRequest
	join     func(id uint64) error // joins req to the model
	texts    []*workerv1.TokenIds  // to embed, instead of req; the model holds the first one that has no vector yet
	box      *mailbox
	arrived  time.Time
	released chan struct{} // closed by Run when the model has forgotten the sequence

	// Owned by Run.
	generated uint32    // by this worker
	due       time.Time // time of the next token, if there is a pace
	paused    time.Time // when the pause began; zero if the sequence is not paused

	vectors []*llmv1.Embedding // of texts; owned by Run until box is closed, then by the reader
}

// New returns a loop over model. Only the loop may use the model.
func New(model Model, opts Options) *Loop {
	l := &Loop{model: model, opts: opts.withDefaults(), wake: make(chan struct{}, 1), batch: make(map[uint64]*sequence)}
	l.embedder, _ = model.(Embedder)
	l.pauser, _ = model.(Pauser)
	l.interrupter, _ = model.(Interrupter)
	if opts.Pace > 0 {
		l.gap = time.Duration(float64(time.Second) / opts.Pace)
	}
	_, l.kvTotal = model.KV()
	return l
}

// Load returns the load of the loop.
func (l *Loop) Load() *llmv1.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &llmv1.Load{
		Running: uint32(l.running), Queued: uint32(len(l.waiting) + l.preparing),
		MaxRunning: uint32(l.opts.MaxRunning), MaxQueued: uint32(l.opts.MaxQueued),
		KvUsedTokens: l.kvUsed, KvTotalTokens: l.kvTotal,
	}
}

// Run steps the model while there is work, until ctx is done. Streams that still run then end with
// ctx's cause. Run must be called once.
func (l *Loop) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		l.release()
		l.admit()
		wait, idle := l.step()
		if !idle {
			continue
		}
		var alarm <-chan time.Time // nil: only wake ends the wait
		if wait > 0 {
			timer.Reset(wait)
			alarm = timer.C
		}
		select {
		case <-l.wake:
		case <-alarm:
		case <-ctx.Done():
		}
	}
	l.shut(streamerr.As(context.Cause(ctx)))
}

// shut ends every stream with cause and refuses new ones.
func (l *Loop) shut(cause error) {
	l.mu.Lock()
	l.closed = cause
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, s := range waiting {
		s.box.close(nil, cause)
		close(s.released)
	}
	for _, s := range l.batch {
		s.box.close(nil, cause)
		l.drop(s)
	}
	l.publish()
}

// release drops the sequences whose readers have left.
func (l *Loop) release() {
	l.mu.Lock()
	leaving := l.leaving
	l.leaving = nil
	l.mu.Unlock()
	for _, s := range leaving {
		l.drop(s)
	}
	if len(leaving) > 0 {
		l.publish()
	}
}

// drop takes a sequence out of the batch and unblocks its reader. It does nothing if the sequence
// is not in the batch, because the end of the answer and the reader's departure may both call it.
func (l *Loop) drop(s *sequence) {
	if _, joined := l.batch[s.id]; !joined {
		return
	}
	l.forget(s)
	used, _ := l.model.KV()
	l.mu.Lock()
	l.running, l.kvUsed = len(l.batch), used // together, and before a caller can see that the place is free
	l.mu.Unlock()
	l.turnover.Freed()
	close(s.released)
}

// forget makes the model forget a sequence of the batch. All memory is freed here, so forget also
// lets the sequence that waits for memory try again.
func (l *Loop) forget(s *sequence) {
	l.unpause(s)
	delete(l.batch, s.id)
	l.full = nil
	l.leaveModel(s.id)
}

// admit moves sequences from the queue into the batch, oldest first, as long as there is room.
func (l *Loop) admit() {
	changed := false
	for len(l.batch) < l.opts.MaxRunning {
		l.mu.Lock()
		if len(l.waiting) == 0 {
			l.mu.Unlock()
			break
		}
		s := l.waiting[0]
		if s == l.full { // asking again costs time proportional to the request's length
			l.mu.Unlock()
			break
		}
		// Join under the lock, so that a reader that leaves at this moment finds the sequence
		// either waiting or in the batch.
		err := l.join(s)
		if errors.Is(err, ErrFull) {
			if len(l.batch) > 0 {
				l.full = s
				l.mu.Unlock()
				break
			}
			err = errNoRoom // the batch is empty, so no sequence will leave and the queue would wait forever
		}
		l.waiting = slices.Delete(l.waiting, 0, 1)
		if err == nil {
			l.batch[s.id] = s
			l.running = len(l.batch)
		}
		l.mu.Unlock()
		changed = true
		if err == nil && l.opts.Observer != nil && len(s.vectors) == 0 {
			l.opts.Observer.Admitted(time.Since(s.arrived))
		}
		if err != nil {
			s.box.close(nil, err)
			close(s.released)
		}
	}
	if changed {
		l.publish()
	}
}

// errNoRoom ends a sequence that does not fit even into an empty model, although the model's Check
// accepted it.
var errNoRoom = &streamerr.Error{
	Reason: streamerr.Internal, Path: streamerr.NewPath(engineHop), Message: "the engine has no room for a request that it has accepted, although nothing else runs",
}

// publish makes Load current. If memory has become free, it lets the sequence that waits for memory
// try again.
func (l *Loop) publish() {
	used, total := l.model.KV()
	l.mu.Lock()
	if used < l.kvUsed {
		l.full = nil
	}
	l.running, l.kvUsed, l.kvTotal = len(l.batch), used, total
	l.mu.Unlock()
}
