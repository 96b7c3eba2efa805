package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/rpc/cause"
	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/rpc/watchdog"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Timers bound how long the streams of a hop may take; 0 means no bound.
type Timers = watchdog.Timers

// WithDeadline returns a context whose stream may take at most d, in addition to the limits of its
// hop.
func WithDeadline(ctx context.Context, d time.Duration) context.Context {
	return watchdog.WithDeadline(ctx, d)
}

// WithAge returns a context whose stream has already run for age on another instance of the hop.
// Its deadline includes that time.
func WithAge(ctx context.Context, age time.Duration) context.Context {
	return watchdog.WithAge(ctx, age)
}

// ErrUndelivered is returned by the send function of Start: the item reached no reader, but the
// stream continues.
var ErrUndelivered = errors.New("rpc: the item reached no reader")

// Start starts a stream that Begin has registered. It passes the items of the engine to send. When the
// stream is over, Start logs how it ended, and calls ended with the outcome, on whichever goroutine
// ends the stream: that may be before Start returns. An error of send, except ErrUndelivered, stops the
// stream and becomes its cause. A panic ends only this stream, with reason INTERNAL.
//
// on is the Loop that carries the item. send calls on.Wait before it waits.
func Start[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Engine[Req, *Out], req Req,
	send func(on *stream.Loop, out *Out) error, ended func(Outcome)) {
	begun := time.Now()
	d := &driver[Req, In, Out]{ctx: ctx, hop: h, m: m, send: send}
	d.ended = func(o Outcome) {
		h.close(ctx, o, begun)
		h.attempt(ctx, func() { ended(o) }) // a panic of ended must not end the process
	}
	d.start(engine, req)
}

// Drive is Start for callers that wait for the outcome. send may block, and no Loop carries the items.
func Drive[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Engine[Req, *Out], req Req, send func(*Out) error) Outcome {
	ended := make(chan Outcome, 1)
	Start(stream.WithBlocking(ctx), h, m, engine, req, func(_ *stream.Loop, out *Out) error { return send(out) }, func(o Outcome) { ended <- o })
	return <-ended
}

// A driver is the Reader of a stream of a hop.
type driver[Req, In, Out any] struct {
	ctx      context.Context //nolint:containedctx // the stream's
	hop      *Hop
	m        *Method[Req, In, Out]
	send     func(on *stream.Loop, out *Out) error
	ended    func(Outcome)
	verbatim bool // send sends the messages unchanged, so that their size is the number of bytes sent

	flow    observer.Flow
	timers  *watchdog.Watch // nil until the engine runs
	outcome Outcome         // zero until an item ends the stream
	over    atomic.Bool     // a stream that breaks may end twice
}

// start starts the engine.
func (d *driver[Req, In, Out]) start(engine stream.Engine[Req, *Out], req Req) {
	if ctl := stream.ControlOf(d.ctx); ctl != nil {
		ctl.OnBreak(d.End) // until the Control is released
	}
	stream.Guard(func() {
		d.flow = observer.Of(d.ctx)
		d.flow.Note(observer.Event{Kind: observer.Running, Text: d.m.operation(), Message: req})
		d.timers = d.hop.watch(d.ctx, d.flow)
		ctx := prefetch.With(prefetch.WithTouched(d.ctx, d.timers), prefetch.Of(d), prefetch.Func(d.send))
		stream.Start(ctx, engine, req, d)
		prefetch.Settle(ctx)
	}, func(failure *stream.Failure) { d.End(failure) })
}

// Item implements stream.Reader.
func (d *driver[Req, In, Out]) Item(on *stream.Loop, out *Out) (more bool) {
	ctx, name := d.ctx, d.hop.Name
	tokens := d.m.tokens(out)
	d.timers.Item(tokens)
	end := d.m.end(out)
	if failure := end.Failure(); failure != nil {
		d.outcome = Outcome{Err: streamerr.Via(name, failure)}
		return false
	}
	if end != nil {
		end.Cross(name)
	}
	if d.m.announces(out, end) {
		d.flow.Note(observer.Event{Kind: observer.Announced, Message: out})
	}
	err := d.send(on, out)
	d.timers.Passed()
	switch {
	case err == nil && d.verbatim:
		d.flow.Sent(tokens, out)
	case err == nil:
		d.flow.Sent(tokens, nil)
	case errors.Is(err, delivery.ErrUnencodable): // then grpc-go ends the call, as if the caller had left
		stream.ControlOf(ctx).Stop(err)
		d.outcome = Outcome{Err: streamerr.Via(name, err)}
		return false
	case !errors.Is(err, ErrUndelivered):
		stream.ControlOf(ctx).Stop(err)
		d.outcome = Outcome{Err: streamerr.Via(name, stream.Cause(ctx))}
		return false
	}
	if end != nil {
		d.outcome = Outcome{End: end}
		return false
	}
	return true
}

// End implements stream.Reader.
func (d *driver[Req, In, Out]) End(err error) {
	if d.over.Swap(true) {
		return
	}
	o := d.outcomeOf(err)
	if d.timers != nil {
		d.timers.End()
	}
	d.ended(o)
}

// outcomeOf returns the outcome of a stream whose engine has ended with err.
func (d *driver[Req, In, Out]) outcomeOf(err error) Outcome {
	name := d.hop.Name
	switch failure, stopped := stream.FailureOf(err), cause.Of(d.ctx); {
	case failure != nil:
		return Outcome{Err: streamerr.Via(name, d.hop.failed(d.ctx, failure))}
	case d.outcome != (Outcome{}):
		return d.outcome
	case err != nil:
		return Outcome{Err: streamerr.Via(name, cause.Ending(d.ctx, err))}
	case stopped != nil:
		return Outcome{Err: streamerr.Via(name, stopped)}
	case d.m.endless():
		return Outcome{End: &streamerr.Ending{Reason: streamerr.Completed, Path: &[]string{name}}}
	default:
		return Outcome{Err: streamerr.Via(name, streamerr.New(streamerr.Internal, "the engine ended without an ending"))}
	}
}

// watch starts the timers of a stream. When the stream waits for its caller and the hop shuts down,
// the stream is stopped.
func (h *Hop) watch(ctx context.Context, flow observer.Flow) *watchdog.Watch {
	w, ctl := h.Timers.Watch(ctx, &h.clock, h.Name), stream.ControlOf(ctx)
	w.OnWait(func() {
		if h.Live.Closed() {
			ctl.Stop(h.draining())
		}
	}, func(took time.Duration) { flow.Note(observer.Event{Kind: observer.Waited, Took: took}) })
	return w
}
