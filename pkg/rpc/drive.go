package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/cause"
	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/rpc/watchdog"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Timers bound how long the streams of a hop may take; 0 is no bound.
type Timers = watchdog.Timers

// WithDeadline returns a context whose stream may take at most d, beside what its hop allows.
func WithDeadline(ctx context.Context, d time.Duration) context.Context {
	return watchdog.WithDeadline(ctx, d)
}

// ErrUndelivered is what send returns to Drive for an item that reached no reader, of a stream that continues.
var ErrUndelivered = errors.New("rpc: there is nobody to deliver to")

// Drive runs a stream that Begin took in: it ranges over the engine, passes its items to send, logs how the stream ended, and
// returns it. An error of send, except ErrUndelivered, stops the stream, and is its cause. A panic ends this stream alone, with
// INTERNAL.
func Drive[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Engine[Req, *Out], req Req, send func(*Out) error) Outcome {
	begun := time.Now()
	o := drive(ctx, h, m, engine, req, send, false)
	h.close(ctx, o, begun)
	return o
}

// drive is Drive without the record of the ending. asItIs reports whether send sends the messages unchanged, so that their size is
// the number of bytes that were sent.
func drive[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Engine[Req, *Out], req Req, send func(*Out) error, asItIs bool) (o Outcome) {
	defer func() {
		if v := recover(); v != nil {
			o = Outcome{Err: streamerr.Via(h.Name, h.panicked(ctx, v))}
		}
	}()
	flow := observer.Of(ctx)
	flow.Note(observer.Event{Kind: observer.Running, Text: m.operation()})
	timers := h.watch(ctx, flow)
	defer timers.End()
	for out, err := range engine(ctx, req) {
		if err != nil {
			return Outcome{Err: streamerr.Via(h.Name, cause.Ending(ctx, err))}
		}
		tokens := m.tokens(out)
		timers.Item(tokens)
		end := m.end(out)
		if end != nil {
			end.Cross(h.Name)
		}
		if end != nil || m.started(out) {
			flow.Note(observer.Event{Kind: observer.Announced, Message: out})
		}
		err := send(out)
		timers.Passed()
		switch {
		case err == nil && asItIs:
			flow.Sent(tokens, out)
		case err == nil:
			flow.Sent(tokens, nil)
		case errors.Is(err, delivery.ErrUnencodable): // for which grpc-go ends the call, as if the caller had left
			stream.ControlOf(ctx).Stop(err)
			return Outcome{Err: streamerr.Via(h.Name, err)}
		case !errors.Is(err, ErrUndelivered):
			stream.ControlOf(ctx).Stop(err)
			return Outcome{Err: streamerr.Via(h.Name, stream.Cause(ctx))}
		}
		if end != nil {
			return Outcome{End: end}
		}
	}
	if stopped := cause.Of(ctx); stopped != nil {
		return Outcome{Err: streamerr.Via(h.Name, stopped)}
	}
	if m.endless() {
		return Outcome{End: &streamerr.Ending{Reason: streamerr.Completed, Path: &[]string{h.Name}}}
	}
	return Outcome{Err: streamerr.Via(h.Name, streamerr.New(streamerr.Internal, "the engine ended without an ending"))}
}

// watch begins the timers of a stream, which may come to wait for its caller. A hop that shuts down does not let it wait.
func (h *Hop) watch(ctx context.Context, flow observer.Flow) *watchdog.Watch {
	w, ctl := h.Timers.Watch(ctx, &h.clock, h.Name), stream.ControlOf(ctx)
	w.OnWait(func() {
		if h.Live.Closed() {
			ctl.Stop(h.draining())
		}
	}, func(took time.Duration) { flow.Note(observer.Event{Kind: observer.Waited, Took: took}) })
	return w
}
