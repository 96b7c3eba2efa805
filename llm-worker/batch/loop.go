// Package batch turns a model that steps a whole batch into a stream.Engine: one goroutine owns the model, admits
// sequences, steps them, and hands each step's tokens out to the streams they belong to.
//
// The idea is the handle loop of SGLang's TokenizerManager (stream id to state), with its faults mended: a slow reader
// never slows the batch and never makes memory grow without bound, and an abandoned stream leaves nothing behind.
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

// Options are a Loop's limits. The zero value of a field is its default.
type Options struct {
	// MaxRunning is how many sequences are in the batch at most.
	MaxRunning int
	// MaxQueued is how many wait for a place in the batch; further ones are refused with OVERLOADED. Negative: none.
	MaxQueued int
	// MaxUnread is how many tokens a reader may leave unread before its stream ends with SLOW_READER.
	MaxUnread int
	// Pace is how many tokens per second a stream gets at most; 0 is as many as the model makes.
	Pace float64
	// Model is the name that Started carries.
	Model string
	// Observer is told what the loop does; nil is nobody.
	Observer Observer
	// Log gets what is no single stream's ending.
	Log *slog.Logger
}

// An Observer is told what a Loop does, by the goroutine of Run, which waits for it.
type Observer interface {
	// Admitted is called for a stream that has its place in the batch.
	Admitted(waited time.Duration)
	// Stepped is called after each step, with the number of its streams; prefill says that for one of them at least it was
	// the first, or one that read its prompt.
	Stepped(took time.Duration, streams int, prefill bool)
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

// A Loop serves streams from one model. Generate, a stream.Engine, works while Run does, and so does Embed.
type Loop struct {
	model    Model
	embedder Embedder // model, if it is one
	opts     Options
	gap      time.Duration // between two tokens of a stream; 0 without a pace
	wake     chan struct{} // capacity 1: a stream came or left

	turnover stream.Turnover

	// Owned by Run.
	batch map[uint64]*sequence // those that have joined
	ids   []uint64
	outs  []Output
	full  *sequence // the sequence that the model had no room for; nil once another sequence has left

	mu      sync.Mutex // guards the following fields
	nextID  uint64
	waiting []*sequence // in order of arrival
	leaving []*sequence // have joined, and their readers have left
	running int         // len(batch), for Load
	kvUsed  uint64
	kvTotal uint64
	closed  error // why no stream is taken any more
}

// A sequence is one stream in the loop.
type sequence struct {
	id       uint64
	req      *workerv1.TokenRequest
	texts    []*workerv1.TokenIds // to be embedded, in place of req; in the model there is the one behind those that have a vector
	box      *mailbox
	arrived  time.Time
	released chan struct{} // closed by Run once the model has forgotten the sequence

	// Owned by Run.
	generated uint32    // here
	due       time.Time // of the next token, under a pace

	vectors []*llmv1.Embedding // of texts; owned by Run until box is closed, and by the reader from then on
}

// New returns a loop over model, which nobody else may use.
func New(model Model, opts Options) *Loop {
	l := &Loop{model: model, opts: opts.withDefaults(), wake: make(chan struct{}, 1), batch: make(map[uint64]*sequence)}
	l.embedder, _ = model.(Embedder)
	if opts.Pace > 0 {
		l.gap = time.Duration(float64(time.Second) / opts.Pace)
	}
	_, l.kvTotal = model.KV()
	return l
}

// Load is how busy the loop is.
func (l *Loop) Load() *llmv1.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &llmv1.Load{
		Running: uint32(l.running), Queued: uint32(len(l.waiting)),
		MaxRunning: uint32(l.opts.MaxRunning), MaxQueued: uint32(l.opts.MaxQueued),
		KvUsedTokens: l.kvUsed, KvTotalTokens: l.kvTotal,
	}
}

// Run steps the model while there is something to do, until ctx is done; what still runs then ends with ctx's cause. It
// must be called once.
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
		var alarm <-chan time.Time // nil: only a wake ends the wait
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

// shut ends every stream, and refuses new ones, with cause.
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

// release lets go of the sequences whose readers have left.
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

// drop takes a sequence out of the batch and unblocks its reader. It does nothing if the sequence is not in the
// batch, because both the end of the answer and the reader may ask for it.
func (l *Loop) drop(s *sequence) {
	if _, joined := l.batch[s.id]; !joined {
		return
	}
	l.forget(s)
	used, _ := l.model.KV()
	l.mu.Lock()
	l.running, l.kvUsed = len(l.batch), used // together, and before anybody can know that the place is free
	l.mu.Unlock()
	l.turnover.Freed()
	close(s.released)
}

// forget makes the model forget a sequence of the batch. The sequence that waits for room is tried again: every way in which memory
// becomes free leads through here.
func (l *Loop) forget(s *sequence) {
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
		if s == l.full { // to ask costs as much as the request is long, and guides are compiled for it
			l.mu.Unlock()
			break
		}
		// Joined under the lock, so that a reader that leaves now is either still waiting or in the batch.
		err := l.join(s)
		if errors.Is(err, ErrFull) {
			if len(l.batch) > 0 {
				l.full = s
				l.mu.Unlock()
				break
			}
			err = errNoRoom // no sequence will leave, so the queue would wait for ever
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

// errNoRoom ends a sequence that does not fit into a model without sequences, although the model's Check let it pass.
var errNoRoom = &streamerr.Error{
	Reason: streamerr.Internal, Path: streamerr.NewPath(engineHop), Message: "the engine has no room for a request that it has accepted, although nothing else runs",
}

// publish makes Load current.
func (l *Loop) publish() {
	used, total := l.model.KV()
	l.mu.Lock()
	l.running, l.kvUsed, l.kvTotal = len(l.batch), used, total
	l.mu.Unlock()
}
