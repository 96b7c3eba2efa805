package route

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route/failover"
	"github.com/whence-dev/whence/chat-service/route/fit"
	"github.com/whence-dev/whence/chat-service/route/idlist"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/bigstack"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

type (
	event       = failover.Event[*fleet.Worker]
	action      = failover.Action[*fleet.Worker]
	tokenReader = stream.Reader[*workerv1.GenerateResponse]
)

// A drive runs one stream: it executes the actions of the stream's failover machine, and feeds it
// events.
//
// Each attempt has a goroutine, which starts the worker's engine. A message passes through the machine
// up to the reader (receive.go) on the goroutine that carries it. Timers, health changes, stops and the
// stream's turn to move have goroutines of their own (watch.go). All of them step the machine under
// mu. mu is free while the reader handles a message: events that occur then wait in pending for the
// goroutine that carries the message.
type drive struct {
	// Static.
	ctx      context.Context //nolint:containedctx // of the stream, which the drive is
	pool     *Pool
	req      *workerv1.TokenRequest // as the caller sent it
	sampling *llmv1.Sampling        // as the caller sent it, with a seed
	began    time.Time
	waiter   waiter      // the stream's entry in the queue of streams that move
	turns    atomic.Bool // takeTurn has started a goroutine that has not run yet

	mu      sync.Mutex // guards the following fields
	machine *failover.Machine[*fleet.Worker]
	to      tokenReader                // called without mu, by one goroutine at a time
	left    bool                       // the reader has left
	now     time.Duration              // time of the current event, since began
	on      *stream.Loop               // carries the current message; may be nil
	out     *workerv1.GenerateResponse // the current message
	answer  idlist.List                // token ids delivered so far
	err     error                      // the cause for leaving the current call after the reader has left

	carrier *attempt         // the attempt whose message is carried, or was when the reader panicked
	inside  bool             // the reader has a message; then its goroutine steps the machine
	pending failover.Pending // events that occurred while inside, or while closing
	over    bool             // the stream has ended, or its reader has left
	ending  error            // of the stream, for the reader
	awaited *attempt         // the reader gets the ending when this attempt's call is over; nil if there is none
	told    bool             // the reader has its ending
	timer   *time.Timer      // nil until the machine first needs a timer
	armed   time.Duration    // when timer fires, since began; 0 if it is not armed
	stopped bool             // the machine has been told that the stream was stopped
	unstop  func() bool      // nil until Start sets it

	attempt *attempt   // the attempt that answers, or will answer once its prompt is read; may be nil
	next    *attempt   // the attempt that will replace attempt
	prefill *prefill   // the prefill of the prompt on another worker; may be nil
	behind  []*attempt // attempts that the stream has left without waiting for the end of their calls
}

// errReaderPanicked is the cause for leaving a call whose reader panicked.
var errReaderPanicked = streamerr.New(streamerr.Internal, "the reader panicked")

// Generate is Start for a loop.
func (p *Pool) Generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse](p.Start).Range(ctx, req)
}

// Start is a stream.Engine. A stream ends with UNAVAILABLE if no worker can be reached, and with
// its first loss if no other worker can continue it. A stream that Loops carry needs no goroutine.
func (p *Pool) Start(ctx context.Context, req *workerv1.TokenRequest, to tokenReader) {
	if cause := stream.Cause(ctx); cause != nil {
		to.End(cause)
		return
	}
	d := p.drive(ctx, req, to)
	d.watch(func() { d.handle(failover.Begin) })
	undo := stream.AtStop(ctx, func(error) { d.halt() })
	d.mu.Lock()
	over := d.over
	d.unstop = undo
	d.mu.Unlock()
	if over {
		undo()
	}
}

func (p *Pool) drive(ctx context.Context, req *workerv1.TokenRequest, to tokenReader) *drive {
	now := time.Now()
	p.retries.Earn(now)
	d := &drive{
		ctx: ctx, pool: p, req: req, sampling: fit.Seeded(req.GetSampling()), began: now,
		machine: failover.New[*fleet.Worker](p.opts.limits()), to: to, err: errReaderPanicked,
	}
	d.ctx = prefetch.With(prefetch.WithTouched(ctx, d.machine), prefetch.Of(d))
	d.waiter = waiter{began: now, turn: d.takeTurn}
	return d
}

// end ends the stream, once: it stops the call that still runs. The reader gets the ending when that
// call is over. Abandoned calls end by themselves. mu is held.
func (d *drive) end() {
	d.over = true
	d.pool.leaveQueue(&d.waiter)
	if d.timer != nil {
		d.timer.Stop()
	}
	a := d.attempt
	if d.next != nil {
		d.next.abandon()
	}
	if r := d.prefill; r != nil {
		a.abandon()
		a = r.attempt
	}
	if a == nil || slices.Contains(d.behind, a) {
		return
	}
	awaited := !a.isEnded() && !a.isFetching()
	a.leave(d.err)
	if awaited {
		d.awaited = a
	}
}

// unlock releases mu, and gives the reader its ending if it is due. The caller serves only this stream.
func (d *drive) unlock() {
	if d.endsNow() {
		d.close()
	}
}

// endsNow releases mu, and reports whether the caller must call close.
func (d *drive) endsNow() bool {
	defer d.mu.Unlock()
	if !d.over || d.awaited != nil || d.told {
		return false
	}
	d.told = true
	return true
}

// close gives the reader its ending. If the reader panics, the stream breaks.
func (d *drive) close() {
	d.mu.Lock()
	undo := d.unstop
	d.mu.Unlock()
	if undo != nil {
		undo()
	}
	stream.Guard(func() { d.to.End(d.ending) }, func(failure *stream.Failure) { stream.ControlOf(d.ctx).Break(failure) })
}

// step feeds an event to the machine and executes its actions, then handles the events that
// occurred while the reader had a message. mu is held, except while the reader has a message.
func (d *drive) step(e event) {
	d.react(e)
	if d.pending != 0 {
		d.on.Wait() // what follows may search for a worker and write a log line
	}
	for d.pending != 0 && !d.finished() {
		d.now = time.Since(d.began)
		d.react(event{Kind: d.pending.Take()})
	}
	switch {
	case !d.finished():
		d.arm()
	case !d.over:
		if d.left {
			d.ending = stream.Cause(d.ctx)
		}
		d.end()
	}
}

// finished reports whether the stream has ended or its reader has left.
func (d *drive) finished() bool { return d.left || d.machine.Over() }

func (d *drive) react(e event) {
	switch e.Kind {
	case failover.Tick, failover.Fail, failover.Read, failover.Down, failover.Turn:
		if cause := stream.Cause(d.ctx); cause != nil && !d.stopped { // a stop wins over every failure
			d.stopped = true
			d.react(event{Kind: failover.Stop, Err: cause})
		}
	default:
	}
	for again := true; again; {
		again = false
		for _, a := range d.machine.Step(d.now, e) {
			if e, again = d.do(a); again || d.left {
				break // only the last action of a step has an answer
			}
		}
	}
}

// do executes an action. If again is true, answer is the next event for the machine.
func (d *drive) do(a action) (answer event, again bool) {
	switch a.Verb {
	case failover.Ask, failover.Swap:
		return d.find(a), true
	case failover.ReadFor:
		d.begin()
		return d.read(), true
	case failover.Call:
		d.call()
	case failover.Deliver:
		d.deliver(a.N)
	case failover.Trust:
		a.Worker.Deliver()
		d.attempt.settle(true)
	case failover.Blamed:
		blame(a.Worker, a.As, streamerr.As(a.Err))
	case failover.Leave:
		d.leave(a.Err)
	case failover.Moved:
		d.pool.noteMove(d.ctx, a, d.next.peer)
	case failover.Finish:
		d.pass(d.finish())
	case failover.End:
		d.abandonHandover(a.Err)
		d.ending = a.Err
	case failover.Wait:
		if !d.stopped && stream.Cause(d.ctx) != nil {
			d.pending.Add(failover.Tick) // no running call reports the stop
		}
	case failover.Done:
	}
	return answer, false
}

// find chooses a worker.
func (d *drive) find(a action) event {
	req := d.request(nil)
	positions := fit.Positions(req)
	if d.machine.Sent() > 0 {
		positions = len(req.GetPrompt()) + d.machine.Room()
	}
	w := wish{req: req, without: append(d.stopping(), a.Without...), idle: a.Idle, well: a.Again, usesBudget: a.Retry && !a.Move}
	if a.Move {
		w.waiter = &d.waiter
	}
	found, outcome := d.pool.take(w, positions)
	if outcome == noWorker && a.Again {
		w.without = a.Without // the worker of an abandoned call may take the stream later
		outcome = d.pool.awaitProbes(w, positions, d.began.Add(a.Since), d.takeTurn)
	}
	switch outcome {
	case recovering:
		return event{Kind: failover.Recovering}
	case busy:
		return event{Kind: failover.Busy}
	case noWorker:
		return event{Kind: failover.NotFound, Err: d.pool.refused(d.req)}
	case unpaid:
		return event{Kind: failover.NotFound}
	default:
	}
	d.next = found
	return event{Kind: failover.Found, Choice: failover.Choice[*fleet.Worker]{
		Worker: found.worker, Name: found.peer, Room: fit.Room(d.req, found.info), Exact: found.info.GetContinues(), MayMove: fit.MayMove(d.req, found.info),
		Text:   found.info.GetCapabilities().GetAnswer() == llmv1.Form_FORM_TEXT,
		Reader: d.isReadFor(found, req), Unread: found.unread,
	}}
}

// begin makes the chosen worker the current one.
func (d *drive) begin() {
	if d.next != nil {
		d.attempt, d.next = d.next, nil
	}
}

// call calls the current worker.
func (d *drive) call() {
	d.begin()
	req := d.request(d.attempt.info)
	if r := d.prefill; r != nil {
		d.prefill = nil
		req.KvTransfer = d.conclude(r)
	}
	d.pool.opts.Metrics.Expect(d.attempt.expected)
	d.start(d.attempt, req)
}

// start opens the call of an attempt.
func (d *drive) start(a *attempt, req *workerv1.TokenRequest) {
	r := &reception{drive: d, attempt: a}
	a.fetches = len(req.GetKvTransfer().GetParameters()) > 0
	ctx := a.open(prefetch.With(d.ctx, prefetch.Of(r), prefetch.Of(a)), r, func() { d.watch(func() { d.workerDown(a) }) })
	ledger.SendsPrompt(d.ctx)
	d.pool.calls.Add(1)
	bigstack.Go(func() { stream.Start(ctx, a.worker.Engine(a.peer), req, r) })
}

// leave abandons the current attempt, or that of its prefill worker, without waiting: waiting would
// delay the next worker or the ending.
func (d *drive) leave(why error) {
	a := d.attempt
	if r := d.prefill; r != nil {
		a, r.failed = r.attempt, why
	}
	if streamerr.As(why).Reason == streamerr.Completed {
		d.pool.opts.Log.LogAttrs(d.ctx, slog.LevelWarn, "worker sent more tokens than it was asked for, and the surplus is dropped",
			slog.String("stream", stream.ID(d.ctx)), slog.String("hop", d.pool.opts.Self), slog.String("worker", a.peer))
	}
	a.leave(why)
	d.behind = append(d.behind, a)
}

// stopping returns the workers whose abandoned call still runs. They would refuse the stream now.
func (d *drive) stopping() (workers []*fleet.Worker) {
	for _, a := range d.behind {
		if !a.isEnded() {
			workers = append(workers, a.worker)
		}
	}
	return workers
}

// blame records a failure against a worker.
func blame(w *fleet.Worker, as failover.Blame, why *streamerr.Error) {
	switch as {
	case failover.Failed:
		w.Fail(why.Reason)
	case failover.Doubted:
		w.Doubt(why.Reason)
	case failover.Full:
		w.Refuse(why.RetryAfter)
	case failover.Nothing:
	}
}

// noteMove records that the stream moves to another worker, and why the previous worker lost it.
func (p *Pool) noteMove(ctx context.Context, a action, to string) {
	why := streamerr.As(a.Err)
	p.opts.Log.LogAttrs(ctx, slog.LevelInfo, "stream moved",
		slog.String("stream", stream.ID(ctx)), slog.String("hop", p.opts.Self), slog.String("from", a.From), slog.String("to", to),
		slog.String("reason", why.Reason.String()), slog.Int("tokens", a.N), slog.Bool("exact", a.Exact), slog.String("message", why.Text()))
	ledger.Of(ctx).Moved(a.From, to, why.Reason, a.N)
	ledger.Of(ctx).AnsweredBy(to)
	p.opts.Metrics.Retried(why.Reason, a.N > 0)
}
