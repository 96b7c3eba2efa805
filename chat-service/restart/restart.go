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

// A Reader takes the answer of a choice.
type Reader = stream.Reader[*chatv1.GenerateResponse]

// A Source starts the answer to one choice. anew omits the part of the answer that another chat-service
// has delivered.
type Source func(ctx context.Context, anew bool, to Reader)

// A TokenEngine answers token ids.
type TokenEngine = stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]

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

// Gathered answers a choice of a gathered request with next, and starts next again for a restart.
func Gathered(ctx context.Context, o *Options, next Source, to Reader) {
	r := &run{Relay: stream.RelayTo(to), ctx: ctx, opts: o, next: next, began: time.Now()}
	r.step(nil, Event{Kind: Begin})
	r.row.Then(r.attempt)
}

// A run executes the actions of one choice's machine. One goroutine at a time uses it.
type run struct {
	stream.Relay[*chatv1.GenerateResponse]

	ctx   context.Context //nolint:containedctx // of the stream, which the run is
	opts  *Options
	next  Source
	row   stream.Row
	began time.Time

	machine Machine
	anew    bool // argument of the next attempt
}

// An attempt is one run of the engine below, and its Reader.
type attempt struct {
	run     *run
	callee  stream.Callee // the worker
	flowing bool          // the attempt has sent a token
}

type attemptKey struct{}

// attempt starts the engine below.
func (r *run) attempt() {
	t := &attempt{run: r}
	r.next(stream.WithCallee(context.WithValue(r.ctx, attemptKey{}, t), &t.callee), r.anew, t)
}

// Item implements stream.Reader.
func (t *attempt) Item(on *stream.Loop, out *chatv1.GenerateResponse) (more bool) {
	e := Event{Kind: Item, Item: out}
	if out.GetStarted() != nil {
		e.Worker = t.callee.Name()
	}
	return t.run.step(on, e)
}

// End implements stream.Reader: the answer ends, or is restarted.
func (t *attempt) End(err error) {
	r := t.run
	if stream.FailureOf(err) == nil && r.step(nil, t.last(err)) {
		r.row.Then(r.attempt)
	} else {
		r.End(err)
	}
}

// last returns the event for the end of the attempt.
func (t *attempt) last(err error) Event {
	cause := stream.Cause(t.run.ctx)
	switch {
	case err == nil:
		return Event{Kind: Over}
	case cause != nil:
		return Event{Kind: Stop, Err: cause}
	default:
		return Event{Kind: Fail, Err: err, Worker: t.callee.Name(), Flowing: t.flowing}
	}
}

// step feeds an event to the machine and executes its action. It returns false when the answer is
// over, or its reader has left.
func (r *run) step(on *stream.Loop, e Event) bool {
	if r.over() {
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
			return r.step(on, Event{Kind: Paid})
		}
		return r.step(on, Event{Kind: Unpaid})
	case Deliver:
		r.Pass(on, e.Item)
	case TakeBack:
		r.takeBack(on, a)
	case End:
		r.Finish(a.Err)
	case Done:
	}
	return !r.over()
}

// over reports whether the answer is over, or the reader has left.
func (r *run) over() bool { return r.Left() || r.machine.Over() }

// takeBack takes back the text of earlier attempts after a worker has admitted the answer again.
func (r *run) takeBack(on *stream.Loop, a Action) {
	if r.opts.Log != nil {
		r.opts.Log.LogAttrs(r.ctx, slog.LevelInfo, "stream restarted",
			slog.String("stream", stream.ID(r.ctx)), slog.String("hop", r.opts.Self), slog.String("from", a.From), slog.String("to", a.To),
			slog.String("reason", a.Why.Reason.String()), slog.Int("wasted", a.N), slog.String("message", a.Why.Text()))
	}
	record := ledger.Of(r.ctx)
	record.Moved(a.From, a.To, a.Why.Reason, 0)
	record.AnsweredBy(a.To)
	record.TakenBack(a.N)
	r.Pass(on, &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Restarted{Restarted: &chatv1.Restarted{}}})
}

// Watch wraps next and notes the first token of an attempt for Gathered. It belongs below all
// stages that may hold back tokens.
func Watch(next TokenEngine) TokenEngine {
	return func(ctx context.Context, req *workerv1.TokenRequest, to stream.Reader[*workerv1.GenerateResponse]) {
		if t, ok := ctx.Value(attemptKey{}).(*attempt); ok {
			to = &tokenWatch{stream.RelayTo(to), t}
		}
		next(ctx, req, to)
	}
}

// A tokenWatch is the Reader of an attempt's tokens.
type tokenWatch struct {
	stream.Relay[*workerv1.GenerateResponse]

	attempt *attempt
}

// Item implements stream.Reader.
func (w *tokenWatch) Item(on *stream.Loop, out *workerv1.GenerateResponse) (more bool) {
	w.attempt.flowing = w.attempt.flowing || len(out.GetTokens().GetIds()) > 0
	return w.Pass(on, out)
}
