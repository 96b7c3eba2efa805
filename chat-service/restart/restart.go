// Package restart restarts an answer when its worker is lost in mid-stream, no other worker can resume it, and its
// caller has not shown it.
//
// Package route retries before the first token and moves after it. If the worker's engine cannot resume, a stream
// whose text the client has read must end as its worker did. A gathered answer (ChatRequest.gathered) need not,
// because its caller still holds all of it: Gathered takes back the delivered part (Restarted) and calls the engine below
// once more, with all stages in their first state. Each choice is restarted separately. The deadline and the stop are
// those of the whole stream.
//
// Deliberately absent: a restart of an answer that the model or a rule refused, or that ended with a bug, because the
// next worker would fail in the same way.
package restart

import (
	"context"
	"iter"
	"log/slog"
	"time"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Max is the maximum number of restarts of an answer: each costs a whole answer.
const Max = 2

// Window is the maximum time from the first loss to a restart. The search for another worker may have taken longer
// than that, because all others were full; then the caller hears of the loss rather than wait for another search.
const Window = 10 * time.Second

// A Source answers one choice. anew leaves out the part of the answer that another chat-service has delivered.
type Source func(ctx context.Context, anew bool) iter.Seq2[*chatv1.GenerateResponse, error]

// A TokenEngine answers token ids.
type TokenEngine = stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// Options configure restarts. The zero value restarts without a budget, and logs nothing.
type Options struct {
	// Self is this hop's name.
	Self string
	// Allow takes one restart from the budget that restarts share with retries; nil allows all.
	Allow func() bool
	// Log gets a line for each restart. It may be nil.
	Log *slog.Logger
}

// Gathered answers a choice of a gathered request with next, which it calls again when the choice is restarted.
func Gathered(ctx context.Context, o *Options, next Source) iter.Seq2[*chatv1.GenerateResponse, error] {
	return func(yield func(*chatv1.GenerateResponse, error) bool) {
		a := &answer{opts: o, next: next, yield: yield}
		for a.try(ctx) { // until there is no reason to restart
		}
	}
}

// An answer is one choice of a gathered request. Its fields are owned by the stream's goroutine.
type answer struct {
	opts  *Options
	next  Source
	yield func(*chatv1.GenerateResponse, error) bool

	restarts int
	told     uint32           // tokens that were delivered and not taken back
	first    *streamerr.Error // the first loss: the ending if no restart completes the answer
	firstAt  time.Time        // when the first loss was known here
	lost     *streamerr.Error // the last loss
	from     string           // the worker of the last loss
}

// An attempt is one run of the engine below.
type attempt struct {
	callee  stream.Callee // the worker
	flowing bool          // a token has come
}

type attemptKey struct{}

// try runs the engine below once. It reports whether to restart the answer.
func (a *answer) try(ctx context.Context) (again bool) {
	t := &attempt{}
	for out, err := range a.next(stream.WithCallee(context.WithValue(ctx, attemptKey{}, t), &t.callee), a.restarts > 0) {
		switch {
		case err != nil && t.flowing && stream.Cause(ctx) == nil && restarts(streamerr.As(err)) && a.allowed():
			a.lose(t, err)
			a.restarts++
			return true
		case err != nil:
			a.fail(ctx, err)
			return false
		case out.GetStarted() != nil && a.restarts > 0:
			if !a.begin(ctx, t) {
				return false
			}
			continue
		}
		a.told += out.GetDelta().GetTokens()
		if !a.yield(out, nil) || out.GetEnd() != nil {
			return false
		}
	}
	return false
}

// allowed reports whether the bounds of restarts allow one more.
func (a *answer) allowed() bool {
	if a.restarts >= Max || a.first != nil && time.Since(a.firstAt) > Window {
		return false
	}
	return a.opts.Allow == nil || a.opts.Allow()
}

// restarts reports whether another try may do better: the worker or its engine is at fault, and not the request. A deadline is here that of
// a worker or its engine: one of this hop, or of a caller, is the cause of a stop.
func restarts(e *streamerr.Error) bool {
	switch e.Reason {
	case streamerr.PeerLost, streamerr.PeerReset, streamerr.Draining, streamerr.Unavailable, streamerr.Overloaded, streamerr.EngineFailed, streamerr.Deadline:
		return true
	default:
		return false
	}
}

// lose notes how an attempt has failed.
func (a *answer) lose(t *attempt, err error) {
	a.lost, a.from = streamerr.As(err), t.callee.Name()
	if a.first == nil {
		a.first, a.firstAt = a.lost, time.Now()
	}
}

// begin takes back the text of earlier attempts, once a worker has admitted the answer again. It reports false if the
// reader has left.
func (a *answer) begin(ctx context.Context, t *attempt) bool {
	if a.lost == nil {
		return true // there is no loss to report
	}
	if a.opts.Log != nil {
		a.opts.Log.LogAttrs(ctx, slog.LevelInfo, "stream restarted",
			slog.String("stream", stream.ID(ctx)), slog.String("hop", a.opts.Self), slog.String("from", a.from), slog.String("to", t.callee.Name()),
			slog.String("reason", a.lost.Reason.String()), slog.Int("wasted", int(a.told)), slog.String("message", a.lost.Text()))
	}
	record := ledger.Of(ctx)
	record.Moved(a.from, t.callee.Name(), a.lost.Reason, 0)
	record.TakenBack(int(a.told))
	a.told, a.lost = 0, nil
	return a.yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Restarted{Restarted: &chatv1.Restarted{}}}, nil)
}

// fail ends the answer with the stop if there was one, else with the first loss if there was one, else with err.
func (a *answer) fail(ctx context.Context, err error) {
	if cause := stream.Cause(ctx); cause != nil {
		err = cause
	} else if a.first != nil {
		e := *a.first
		e.Message = streamerr.New(e.Reason, "%s; after %d restarts: %s", e.Text(), a.restarts, streamerr.As(err).Text()).Message
		err = &e
	}
	a.yield(nil, err)
}

// Watch returns next, and tells Gathered about its tokens, so that Gathered knows how far a try has come. It belongs below all
// stages that may hold tokens back.
func Watch(next TokenEngine) TokenEngine {
	return func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		t, _ := ctx.Value(attemptKey{}).(*attempt)
		if t == nil {
			return next(ctx, req)
		}
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for out, err := range next(ctx, req) {
				t.flowing = t.flowing || len(out.GetTokens().GetIds()) > 0
				if !yield(out, err) {
					return
				}
			}
		}
	}
}
