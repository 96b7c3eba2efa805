package rpc

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/internal/panicvalue"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/drain"
	"github.com/whence-dev/whence/pkg/rpc/callctx"
	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/rpc/protocol"
	"github.com/whence-dev/whence/pkg/rpc/report"
	"github.com/whence-dev/whence/pkg/rpc/wire"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// DefaultGrace is the time in which a stopped stream must end before its call is reset.
const DefaultGrace = protocol.DefaultGrace

// A Hop runs and ends the streams of one service. Its fields must not change while it is in use.
type Hop struct {
	// Name is the hop's name in paths and logs, such as "chat-service" or "llm-worker/0".
	Name string
	// Live holds the live streams of all methods of the hop.
	Live stream.Set
	// Grace is the time in which a stopped stream must end, before its calls are reset; 0 means
	// DefaultGrace.
	Grace time.Duration
	// Observer receives each event of each stream. It may be nil.
	Observer observer.Observer
	// Timers bound the time that a stream may take.
	Timers Timers
	// Log receives one line for each ended stream. If nil, the lines are discarded.
	Log *slog.Logger

	clock coarse.Clock // of the streams' Timers

	// callers maps the id of each live stream to the connloss.Doubter of its caller, if there is
	// one. If another request has the same id, the caller of the live stream may be frozen: then
	// the id must become free for the caller that continues the stream.
	callers sync.Map
}

// retryAfterDrain is the Retry-After of a hop that shuts down. After that time another replica, or
// the next process, serves.
const retryAfterDrain = time.Second

// Begin registers a new stream. id points to the stream's id as given by the caller; Begin fills in
// a new id if it is empty. owner is the stream's owner, or empty; peer is the caller's address, for
// display. When parent is done, the stream is stopped with the result of lost; if lost is nil, the
// stream continues. The returned context has a Control, the id and the record. The caller must call
// end when the stream has ended.
func (h *Hop) Begin(parent context.Context, id *string, owner, peer string, lost func() *streamerr.Error) (ctx context.Context, end func(), err error) {
	if *id == "" {
		*id = stream.NewID()
	}
	if !stream.ValidID(*id) {
		return nil, nil, streamerr.InvalidParam("stream_id", "stream_id must be 1 to 128 of A-Z a-z 0-9 . _ : -")
	}
	ctx, ctl := stream.Detached(parent, h.grace())
	remove, err := h.Live.AddOwned(*id, owner, ctl)
	if err != nil {
		ctl.Release()
		if caller, ok := h.callers.Load(*id); ok && errors.Is(err, stream.ErrDuplicate) {
			caller.(connloss.Doubter).Doubt() //nolint:forcetypeassert // only these are stored
		}
		return nil, nil, h.refusal(*id, err)
	}
	key, caller := *id, connloss.DoubterOf(parent)
	if caller != nil {
		h.callers.Store(key, caller)
	}
	ctx = stream.WithID(ctx, *id)
	flow := observer.Flow(observer.Nobody{})
	h.attempt(ctx, func() { flow = h.observe(ctx, parent, *id, owner, peer) })
	ctx = context.WithValue(observer.With(ctx, flow), rootKey{}, ctl)
	ctx = prefetch.WithTouched(ctx, flow)
	ctl.OnStop(func(cause error) { flow.Note(observer.Event{Kind: observer.StopHeard, Err: streamerr.As(cause)}) })
	undo := func() bool { return true }
	if lost != nil {
		undo = context.AfterFunc(parent, func() {
			gone := lost()
			if cause := stream.Cause(ctx); cause != nil { // the caller has left before the ending
				why := streamerr.As(cause)
				flow.Note(observer.Event{Kind: observer.CallerGone, Err: gone, Reason: why.Reason, Path: why.Path})
			}
			ctl.Stop(gone)
		})
	}
	return ctx, func() {
		undo()
		h.attempt(ctx, flow.Close)
		if caller != nil {
			h.callers.Delete(key)
		}
		remove()
		ctl.Release()
	}, nil
}

// afterCall calls f on a goroutine of its own once a served call is over. sink may be nil.
func afterCall(call context.Context, sink loop.Sink, f func()) (undo func() bool) {
	if sink != nil {
		return sink.AfterOver(f)
	}
	return context.AfterFunc(call, f)
}

// attempt calls f, which calls an Observer or a log handler for the stream of ctx. It logs a panic
// of f: such a panic must neither change the stream's ending nor keep the stream in the set of live
// streams.
func (h *Hop) attempt(ctx context.Context, f func()) {
	defer func() {
		if v := recover(); v != nil {
			_ = h.panicked(ctx, v)
		}
	}()
	f()
}

// rootKey is the key of the Control of the whole stream on a hop. Parts of the stream may have
// Controls of their own below it.
type rootKey struct{}

// observe returns the Flow of the stream of ctx, which arrived with call.
func (h *Hop) observe(ctx, call context.Context, id, owner, peer string) observer.Flow {
	method, _ := grpc.Method(call)
	b := observer.Beginning{ID: id, Hop: h.Name, Owner: owner, Peer: peer, Method: strings.TrimPrefix(method, "/"), Path: wire.Callers(call), First: len(wire.Via(call)) == 0}
	b.Header = func(key string) []string { return callctx.Header(call, key) }
	if flow := h.observers().Begin(call, b); flow != nil && flow != (observer.Nobody{}) {
		return observer.Shield(flow, func(v any) { _ = h.panicked(ctx, v) })
	}
	return observer.Nobody{}
}

func (h *Hop) observers() observer.Observer {
	if h.Observer == nil {
		return observer.Nobody{}
	}
	return h.Observer
}

func (h *Hop) log() *slog.Logger {
	if h.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return h.Log
}

func (h *Hop) grace() time.Duration {
	if h.Grace == 0 {
		return DefaultGrace
	}
	return h.Grace
}

// refuse returns the error for the caller of a request that did not become a stream.
func (h *Hop) refuse(err error) error {
	out := streamerr.Via(h.Name, err)
	h.observers().Refused(out.Reason)
	return out
}

func (h *Hop) refusal(id string, err error) error {
	switch {
	case errors.Is(err, stream.ErrDuplicate):
		return streamerr.InvalidParam("stream_id", "a live stream has the id %q; ids must be unique", id)
	case errors.Is(err, stream.ErrClosed):
		return h.draining()
	default:
		return &streamerr.Error{Reason: streamerr.Overloaded, Message: err.Error(), RetryAfter: time.Second}
	}
}

// Stop ends a stream from outside, for a service's unary Stop method. It refuses a stream of an
// owner that the request does not name like a stream that does not exist.
func (h *Hop) Stop(ctx context.Context, req *streamv1.StopStreamRequest) (*streamv1.StopStreamResponse, error) {
	if req.GetStop().GetReason() == streamv1.Reason_REASON_COMPLETED { // the reader would wait for an End
		return nil, streamerr.Via(h.Name, streamerr.InvalidParam("stop.reason", "a stream that is stopped from outside has not completed"))
	}
	ctx = wire.Incoming(ctx)
	cause := wire.FromStop(ctx, req.GetStop(), streamerr.OperatorStop)
	if cause.Reason == streamerr.OperatorStop && len(req.GetStop().GetPath()) == 0 {
		cause.Path = streamerr.NewPath("operator")
	}
	grace := protocol.Budget(req.GetStop().GetGrace().AsDuration(), h.grace())
	age, ok := h.Live.StopWithin(req.GetStreamId(), cause, grace, req.GetOwners()...)
	if !ok {
		return nil, streamerr.Via(h.Name, h.Unknown(req.GetStreamId(), req.GetOwners()...))
	}
	return &streamv1.StopStreamResponse{Age: durationpb.New(age)}, nil
}

// StopBelow returns the Stop with which this hop ends a stream of another instance on the hop
// below. Its grace is the budget that a call of this hop would give the hop below.
func (h *Hop) StopBelow(cause error) *streamv1.Stop {
	return wire.ToStop(streamerr.Via(h.Name, cause), protocol.Below(h.grace()))
}

// Unknown returns the error for a caller that names a stream which does not run here. If owners are
// given, the error reveals how the stream ended only if the stream belonged to one of them.
func (h *Hop) Unknown(id string, owners ...string) *streamerr.Error {
	e := streamerr.New(streamerr.NotFound, "no stream with the id %.128q is known here", id)
	if reason := h.observers().Ending(id, owners...); reason != streamerr.Unspecified {
		e = streamerr.New(streamerr.NotFound, "the stream %.128q has ended: %s", id, reason)
	}
	e.Param = "stream_id"
	return e
}

// Drain refuses new streams from now on, lets the live streams finish for grace, and ends the
// remaining streams with DRAINING. The order in ctx (package drain) says when the grace began, and
// may end it early. In that case a stream that has not ended after drain.KillAfter is killed.
func (h *Hop) Drain(ctx context.Context, grace time.Duration) {
	within, cancel := drain.Within(ctx, grace)
	defer cancel()
	h.Live.Close()
	if streams := h.Live.Len(); streams > 0 {
		until, _ := within.Deadline()
		h.log().Info("draining: live streams may finish until the deadline; a second signal ends them at once",
			"hop", h.Name, "streams", streams, "until", until.UTC().Format(time.RFC3339Nano))
	}
	drained := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() { h.killHurried(ctx, drained) })
	h.Live.Drain(within, h.draining())
	close(drained)
	killer.Wait()
}

// killHurried kills the live streams drain.KillAfter after the second step of the order in ctx. It
// returns when all streams have ended.
func (h *Hop) killHurried(ctx context.Context, drained <-chan struct{}) {
	select {
	case <-drained:
		return
	case <-drain.Hurried(ctx):
	}
	select {
	case <-drained:
	case <-time.After(drain.KillAfter):
		h.Live.Kill(h.draining())
		<-drained
	}
}

func (h *Hop) draining() *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Draining, Message: h.Name + " is shutting down", RetryAfter: retryAfterDrain}
}

// An Outcome is how a stream ended on this hop: with an ending, or with an error that has crossed
// the hop.
type Outcome = report.Outcome

// close reports how the stream ended to the observer and the log.
func (h *Hop) close(ctx context.Context, o Outcome, begun time.Time) {
	flow := observer.Of(ctx)
	ended := observer.Event{Kind: observer.Ended, Reason: o.Reason(), Path: o.Path()}
	if o.Err != nil {
		ended.Text = o.Err.Text()
	}
	h.attempt(ctx, func() { flow.Note(ended) })
	h.attempt(ctx, func() {
		report.Ended(ctx, h.log(), h.Name, report.Ending{End: o.End, Err: o.Err, Reason: o.Reason(), Path: o.Path(), Took: time.Since(begun)})
	})
}

// panicked turns a panic into the ending of its stream. A deferred call calls it.
func (h *Hop) panicked(ctx context.Context, v any) *streamerr.Error {
	return h.failed(ctx, &stream.Failure{Value: v, Stack: debug.Stack()})
}

// failed turns a failure into the ending of its stream, and logs the stack of a panic once. It ignores a
// panic of the log handler.
func (h *Hop) failed(ctx context.Context, failure *stream.Failure) (e *streamerr.Error) {
	if failure.Value == nil {
		e = streamerr.New(streamerr.Internal, "the goroutine of the stream has exited")
		e.Cause = failure
		return e
	}
	e = streamerr.New(streamerr.Internal, "a bug in %s ended this stream; its log has the details", h.Name)
	defer func() { _ = recover() }()
	h.log().ErrorContext(ctx, "panic in a stream", "stream", stream.ID(ctx), "hop", h.Name, "panic", panicvalue.Text(failure.Value), "stack", string(failure.Stack))
	return e
}
