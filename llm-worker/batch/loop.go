// Package batch turns a model that steps a whole batch into a stream.Engine: one goroutine owns the model, admits
// sequences, steps them, and hands each step's tokens out to the streams they belong to.
//
// The idea is the handle loop of SGLang's TokenizerManager (stream id to state), with its faults mended: a slow reader
// never slows the batch and never makes memory grow without bound, and an abandoned stream leaves nothing behind.
package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
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
	full  *sequence // the one that there was no room for, until another has left; nil for none

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

	vectors []*workerv1.Embedding // of texts; owned by Run until box is closed, and by the reader from then on
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
func (l *Loop) Load() *workerv1.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &workerv1.Load{
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

// drop makes the model forget a sequence of the batch. It may be asked twice: by the end of the answer and by the reader.
func (l *Loop) drop(s *sequence) {
	if _, joined := l.batch[s.id]; !joined {
		return
	}
	delete(l.batch, s.id)
	l.model.Leave(s.id)
	l.full = nil
	used, _ := l.model.KV()
	l.mu.Lock()
	l.running, l.kvUsed = len(l.batch), used // together, and before anybody can know that the place is free
	l.mu.Unlock()
	l.turnover.Freed()
	close(s.released)
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
			l.full = s
			l.mu.Unlock()
			break
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

// join adds a sequence to the model.
func (l *Loop) join(s *sequence) error {
	if s.texts != nil {
		return l.embedder.JoinEmbed(s.id, s.texts[len(s.vectors)].GetIds())
	}
	return l.model.Join(s.id, s.req)
}

// publish makes Load current.
func (l *Loop) publish() {
	used, total := l.model.KV()
	l.mu.Lock()
	l.running, l.kvUsed, l.kvTotal = len(l.batch), used, total
	l.mu.Unlock()
}

// step advances the sequences that are due. If there is none it says so, and how long until the next is; 0 if there is
// none at all.
func (l *Loop) step() (wait time.Duration, idle bool) {
	l.ids = l.ids[:0]
	var now time.Time
	if l.gap > 0 {
		now = time.Now()
	}
	for _, s := range l.batch {
		if ahead := s.due.Sub(now); l.gap > 0 && ahead > 0 {
			if wait == 0 || ahead < wait {
				wait = ahead
			}
			continue
		}
		l.ids = append(l.ids, s.id)
	}
	slices.Sort(l.ids) // oldest first, every time: map order would make runs differ
	if len(l.ids) == 0 {
		return wait, true
	}
	begun, prefill := l.watch()
	var err error
	if l.outs, err = l.advance(l.ids, l.outs[:0]); err != nil {
		l.fail(err)
		return 0, false
	}
	if l.opts.Observer != nil {
		l.opts.Observer.Stepped(time.Since(begun), len(l.ids), prefill)
	}
	for _, out := range l.outs {
		l.deliver(out, now)
	}
	return 0, false
}

// watch is what the observer will want to know of the step to come.
func (l *Loop) watch() (begun time.Time, prefill bool) {
	if l.opts.Observer == nil {
		return begun, false
	}
	for _, id := range l.ids {
		if l.batch[id].generated == 0 { // its prompt is still to be read, or the rest of it
			prefill = true
			break
		}
	}
	return time.Now(), prefill
}

// advance steps the model; a panic in it is an error like any other.
func (l *Loop) advance(ids []uint64, outs []Output) (_ []Output, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic in the engine: %v\n%s", v, debug.Stack())
		}
	}()
	return l.model.Step(ids, outs)
}

// fail ends every sequence of a step that failed. The loop goes on: the next batch may be luckier, and if it is not,
// every stream says so.
func (l *Loop) fail(err error) {
	l.opts.Log.Error("engine failed", "streams", len(l.ids), "err", err)
	failed := &streamerr.Error{Reason: streamerr.EngineFailed, Path: streamerr.NewPath(engineHop), Message: "the engine failed; the worker's log has the details", Cause: err}
	for _, id := range l.ids {
		if s := l.batch[id]; s != nil {
			s.box.close(nil, failed)
			l.drop(s)
		}
	}
	l.publish()
}

// engineHop is the origin of endings that the engine decided.
const engineHop = "engine"

func (l *Loop) deliver(out Output, now time.Time) {
	s := l.batch[out.ID]
	if s == nil {
		return
	}
	if out.Err != nil {
		s.box.close(nil, out.Err)
		l.drop(s)
		l.publish()
		return
	}
	if out.Vector != nil {
		l.embedded(s, out.Vector)
		return
	}
	out.Cached = min(out.Cached, s.promptTokens()) // more of one that has moved, whose prompt has its answer
	if out.Handover == "" {
		s.generated++
	} else {
		s.box.hand(out.Handover)
	}
	if l.gap > 0 {
		s.due = s.due.Add(l.gap)
		if s.due.Before(now) { // the first token, or the model is slower than the pace
			s.due = now.Add(l.gap)
		}
	}
	if !out.Hidden && out.Handover == "" && !s.box.put(out) {
		s.box.close(nil, streamerr.New(streamerr.SlowReader, "more than %d tokens were left unread", l.opts.MaxUnread))
		l.drop(s)
		l.publish()
		return
	}
	if out.Finish == streamv1.Finish_FINISH_UNSPECIFIED {
		return
	}
	end := &streamv1.End{
		Reason: streamv1.Reason_REASON_COMPLETED,
		Path:   []string{engineHop},
		Finish: out.Finish,
		Usage: &streamv1.Usage{
			PromptTokens: s.promptTokens(), CompletionTokens: s.req.GetGenerated() + s.generated,
			CachedTokens: out.Cached,
		},
	}
	if out.Hidden {
		end.MatchedToken = new(out.Token)
	}
	s.box.close(end, nil)
	l.drop(s)
	l.publish()
}
