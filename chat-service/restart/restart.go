// Package restart restarts an answer from the beginning when its worker is lost in mid-stream, no
// other worker can resume the answer, and its caller has not shown it.
//
// Package route retries before the first token and moves after it. If the worker's engine cannot
// resume, a stream whose text the client has read must end with its worker. A gathered answer
// (ChatRequest.gathered) need not end, because its caller still holds all of it: Gathered takes
// back the delivered part (Restarted) and runs the engine below again, with all stages in their
// initial state. Each choice is restarted separately. The deadline and the stop of the whole stream
// still apply.
//
// A Machine decides, and is pure. The stories in testdata are scripts of its events with the
// resulting actions.
//
// Deliberately absent: a restart of an answer that the model or a rule refused, or that ended with
// a bug, because the next worker would fail in the same way.
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
)

// Max is the maximum number of restarts of an answer. Each restart costs a whole answer.
const Max = 2

// Window is the maximum time from the first loss to a restart. The search for another worker may
// have taken longer because all others were full. Then the caller gets the loss instead of waiting
// for another search.
const Window = 10 * time.Second

// A Source answers one choice. anew omits the part of the answer that another chat-service has
// delivered.
type Source func(ctx context.Context, anew bool) iter.Seq2[*chatv1.GenerateResponse, error]

// A TokenEngine answers token ids.
type TokenEngine = stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// Options configure restarts. With the zero value there is no budget and no log.
type Options struct {
	// Self is this hop's name.
	Self string
	// Allow takes one restart from the budget that restarts share with retries; nil allows all
	// restarts.
	Allow func() bool
	// Log gets a line for each restart. It may be nil.
	Log *slog.Logger
}

// Gathered answers a choice of a gathered request with next, and calls next again for a restart.
func Gathered(ctx context.Context, o *Options, next Source) iter.Seq2[*chatv1.GenerateResponse, error] {
	return func(yield func(*chatv1.GenerateResponse, error) bool) {
		r := &run{ctx: ctx, opts: o, next: next, yield: yield, began: time.Now()}
		for e := (Event{Kind: Begin}); r.step(e); {
			e = r.attempt()
		}
	}
}

// A run executes the actions of one choice's machine. The stream's goroutine owns its fields.
type run struct {
	ctx   context.Context //nolint:containedctx // of the stream, which the run is
	opts  *Options
	next  Source
	yield func(*chatv1.GenerateResponse, error) bool
	began time.Time

	machine Machine
	anew    bool // argument of the next attempt
	over    bool // the answer is over, or the reader has left
}

// An attempt is one run of the engine below.
type attempt struct {
	callee  stream.Callee // the worker
	flowing bool          // the attempt has sent a token
}

type attemptKey struct{}

// attempt runs the engine below once, and returns the event for its end.
func (r *run) attempt() Event {
	t := &attempt{}
	for out, err := range r.next(stream.WithCallee(context.WithValue(r.ctx, attemptKey{}, t), &t.callee), r.anew) {
		if err != nil {
			if cause := stream.Cause(r.ctx); cause != nil {
				return Event{Kind: Stop, Err: cause}
			}
			return Event{Kind: Fail, Err: err, Worker: t.callee.Name(), Flowing: t.flowing}
		}
		e := Event{Kind: Item, Item: out}
		if out.GetStarted() != nil {
			e.Worker = t.callee.Name()
		}
		if !r.step(e) {
			break
		}
	}
	return Event{Kind: Over}
}

// step feeds an event to the machine and executes its action. It returns false when the answer is
// over, or its reader has left.
func (r *run) step(e Event) bool {
	if r.over {
		return false
	}
	var now time.Duration
	if e.Kind == Fail || e.Kind == Paid {
		now = time.Since(r.began)
	}
	a, ok := r.machine.Step(now, e)
	if !ok {
		return true
	}
	switch a.Verb {
	case Ask:
		r.anew = a.Anew
	case Pay:
		if r.opts.Allow == nil || r.opts.Allow() {
			return r.step(Event{Kind: Paid})
		}
		return r.step(Event{Kind: Unpaid})
	case Deliver:
		r.over = !r.yield(e.Item, nil) || r.machine.Over()
	case TakeBack:
		r.over = !r.takeBack(a)
	case End:
		r.over = true
		r.yield(nil, a.Err)
	case Done:
		r.over = true
	}
	return !r.over
}

// takeBack takes back the text of earlier attempts after a worker has admitted the answer again. It
// returns false if the reader has left.
func (r *run) takeBack(a Action) bool {
	if r.opts.Log != nil {
		r.opts.Log.LogAttrs(r.ctx, slog.LevelInfo, "stream restarted",
			slog.String("stream", stream.ID(r.ctx)), slog.String("hop", r.opts.Self), slog.String("from", a.From), slog.String("to", a.To),
			slog.String("reason", a.Why.Reason.String()), slog.Int("wasted", a.N), slog.String("message", a.Why.Text()))
	}
	record := ledger.Of(r.ctx)
	record.Moved(a.From, a.To, a.Why.Reason, 0)
	record.AnsweredBy(a.To)
	record.TakenBack(a.N)
	return r.yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Restarted{Restarted: &chatv1.Restarted{}}}, nil)
}

// Watch wraps next and notes the first token of an attempt for Gathered. It belongs below all
// stages that may hold back tokens.
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
