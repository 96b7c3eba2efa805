package rpc

import (
	"context"
	"errors"
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

// ErrUndelivered is returned by the send function of Drive: the item reached no reader, but the
// stream continues.
var ErrUndelivered = errors.New("rpc: the item reached no reader")

// Drive runs a stream that Begin has registered. It ranges over the engine, passes the items to
// send, logs how the stream ended, and returns the outcome. An error of send, except
// ErrUndelivered, stops the stream and becomes its cause. A panic ends only this stream, with
// reason INTERNAL.
func Drive[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Sequence[Req, *Out], req Req, send func(*Out) error) Outcome {
	begun := time.Now()
	o := drive(ctx, h, m, engine, req, send, false)
	h.close(ctx, o, begun)
	return o
}

// DriveStarter is Drive for a Starter. It returns over == false while other goroutines carry the
// stream, so that the stream needs no goroutine. When the stream is over, a new goroutine records
// the outcome and calls ended with it.
func DriveStarter[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Starter[Req, *Out], req Req, send func(*Out) error, ended func(Outcome)) (o Outcome, over bool) {
	begun := time.Now()
	d := &driver[Req, In, Out]{ctx: ctx, hop: h, m: m, send: send}
	o, over = d.start(engine, req, func(rest func() (Outcome, bool)) {
		go func() {
			o, over := h.exited(), true // if rest exits the goroutine
			defer func() {
				if over {
					h.close(ctx, o, begun)
					h.attempt(ctx, func() { ended(o) }) // a panic of ended must not end the process
				}
			}()
			o, over = rest()
		}()
	})
	if over {
		h.close(ctx, o, begun)
	}
	return o, over
}

// exited returns the outcome of a stream whose goroutine has exited (runtime.Goexit).
func (h *Hop) exited() Outcome {
	return Outcome{Err: streamerr.Via(h.Name, streamerr.New(streamerr.Internal, "the goroutine of the stream has exited"))}
}

// drive is Drive without the record of the ending. verbatim reports whether send sends the messages
// unchanged, so that their size is the number of bytes sent.
func drive[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Sequence[Req, *Out], req Req, send func(*Out) error, verbatim bool) Outcome {
	d := &driver[Req, In, Out]{ctx: ctx, hop: h, m: m, send: send, verbatim: verbatim}
	o, _ := d.start(engine.Starter(), req, nil)
	return o
}

// A driver runs one stream for drive.
type driver[Req, In, Out any] struct {
	ctx      context.Context //nolint:containedctx // the stream's
	hop      *Hop
	m        *Method[Req, In, Out]
	send     func(*Out) error
	verbatim bool

	flow    observer.Flow
	timers  *watchdog.Watch // nil until the engine runs
	outcome Outcome         // zero until an item or an error of the engine ends the stream
}

// start runs the stream and returns its outcome, or over == false if other goroutines carry the
// stream. In that case start calls resume later, which has another goroutine call rest. rest does
// the remaining work, and returns what start returns.
func (d *driver[Req, In, Out]) start(engine stream.Starter[Req, *Out], req Req, resume func(rest func() (o Outcome, over bool))) (o Outcome, over bool) {
	return d.run(func() bool {
		d.flow = observer.Of(d.ctx)
		d.flow.Note(observer.Event{Kind: observer.Running, Text: d.m.operation(), Message: req})
		d.timers = d.hop.watch(d.ctx, d.flow)
		ctx := prefetch.With(prefetch.WithTouched(d.ctx, d.timers), prefetch.Of(d), prefetch.Func(d.send))
		over := engine(ctx, req, d.take, func(rest func() (over bool)) {
			resume(func() (o Outcome, over bool) { return d.run(rest) })
		})
		prefetch.Settle(ctx)
		return over
	})
}

// run runs a part of the stream. A panic becomes an outcome with reason INTERNAL.
func (d *driver[Req, In, Out]) run(f func() (over bool)) (o Outcome, over bool) {
	over = true // also if f panics or exits
	defer func() {
		if over && d.timers != nil {
			d.timers.End()
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			o = Outcome{Err: streamerr.Via(d.hop.Name, d.hop.panicked(d.ctx, v))}
		}
	}()
	if over = f(); over {
		o = d.ended()
	}
	return o, over
}

// take handles an item or the error of the engine. It reports whether the stream continues.
func (d *driver[Req, In, Out]) take(out *Out, err error) (more bool) {
	ctx, name := d.ctx, d.hop.Name
	if err != nil {
		d.outcome = Outcome{Err: streamerr.Via(name, cause.Ending(ctx, err))}
		return false
	}
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
	err = d.send(out)
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

// ended returns the outcome of a stream whose engine has ended.
func (d *driver[Req, In, Out]) ended() Outcome {
	if d.outcome != (Outcome{}) {
		return d.outcome
	}
	if stopped := cause.Of(d.ctx); stopped != nil {
		return Outcome{Err: streamerr.Via(d.hop.Name, stopped)}
	}
	if d.m.endless() {
		return Outcome{End: &streamerr.Ending{Reason: streamerr.Completed, Path: &[]string{d.hop.Name}}}
	}
	return Outcome{Err: streamerr.Via(d.hop.Name, streamerr.New(streamerr.Internal, "the engine ended without an ending"))}
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
