package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// DefaultGrace is how long a stopped stream has to say goodbye before it is cut.
const DefaultGrace = 250 * time.Millisecond

// A Hop is what a service knows of the streams that it serves. Its fields must not change while it is in use.
type Hop struct {
	// Name stands in paths and logs, such as "chat-service" or "llm-worker/0".
	Name string
	// Live holds the streams that run, over all methods of the hop.
	Live stream.Set
	// Grace is how long a stopped stream has to say goodbye; 0 is DefaultGrace.
	Grace time.Duration
	// Log gets one line per ended stream.
	Log *slog.Logger
}

// retryAfterDrain is what callers of a hop that shuts down are told: another replica, or the next process, is there by
// then.
const retryAfterDrain = time.Second

// begin takes a stream in: it gives it an id, a context and a control.
func (h *Hop) begin(parent context.Context, id *string) (context.Context, *stream.Control, func(), error) {
	if *id == "" {
		*id = stream.NewID()
	}
	if !stream.ValidID(*id) {
		return nil, nil, nil, streamerr.InvalidParam("stream_id", "stream_id must be 1 to 128 of A-Z a-z 0-9 . _ : -")
	}
	grace := h.Grace
	if grace == 0 {
		grace = DefaultGrace
	}
	ctx, ctl := stream.WithControl(context.WithoutCancel(parent), grace)
	remove, err := h.Live.Add(*id, ctl)
	if err != nil {
		ctl.Release()
		return nil, nil, nil, h.refusal(*id, err)
	}
	undo := context.AfterFunc(parent, func() { ctl.Stop(lost(ctx, parent)) })
	end := func() {
		undo()
		remove()
		ctl.Release()
	}
	return stream.WithID(ctx, *id), ctl, end, nil
}

func (h *Hop) refusal(id string, err error) error {
	switch {
	case errors.Is(err, stream.ErrDuplicate):
		return streamerr.InvalidParam("stream_id", "a live stream has the id %q; ids must be unique", id)
	case errors.Is(err, stream.ErrClosed):
		return &streamerr.Error{Reason: streamerr.Draining, Message: "this instance is shutting down", RetryAfter: retryAfterDrain}
	default:
		return &streamerr.Error{Reason: streamerr.Overloaded, Message: err.Error(), RetryAfter: time.Second}
	}
}

// lost says why the caller's side of a call is done without a Stop having come.
func lost(ctx, parent context.Context) *streamerr.Error {
	if errors.Is(parent.Err(), context.DeadlineExceeded) {
		return streamerr.New(streamerr.Deadline, "the deadline that the caller set on the call has passed")
	}
	return &streamerr.Error{
		Reason:  streamerr.PeerReset,
		Path:    streamerr.NewPath(caller(ctx)),
		Message: "the caller reset the call without a reason, or its connection broke",
	}
}

// Stop ends a stream from outside of it, for a service's unary Stop method.
func (h *Hop) Stop(ctx context.Context, req *streamv1.StopStreamRequest) (*streamv1.StopStreamResponse, error) {
	ctx = withIncomingVia(ctx)
	cause := fromStop(ctx, req.GetStop(), streamerr.OperatorStop)
	if cause.Reason == streamerr.OperatorStop && len(req.GetStop().GetPath()) == 0 {
		cause.Path = streamerr.NewPath("operator")
	}
	age, ok := h.Live.Stop(req.GetStreamId(), cause)
	if !ok {
		return nil, streamerr.Via(h.Name, &streamerr.Error{
			Reason: streamerr.NotFound, Param: "stream_id",
			Message: fmt.Sprintf("no live stream has the id %q here", req.GetStreamId()),
		})
	}
	return &streamv1.StopStreamResponse{Age: durationpb.New(age)}, nil
}

// An outcome is how a stream ended on this hop: with an End, or with an error that has crossed this hop.
type outcome struct {
	end *streamv1.End
	err *streamerr.Error
}

func (o outcome) reason() streamerr.Reason {
	if o.err != nil {
		return o.err.Reason
	}
	return streamerr.Reason(o.end.GetReason())
}

// status is what the handler returns. A caller that left because it had what it needed has completed.
func (o outcome) status() error {
	if o.reason() == streamerr.Completed {
		return nil
	}
	return o.err
}

func (o outcome) path() streamerr.Path {
	if o.err != nil {
		return o.err.Path
	}
	return streamerr.NewPath(o.end.GetPath()...)
}

func (h *Hop) log(ctx context.Context, o outcome, begun time.Time) {
	attrs := []slog.Attr{
		slog.String("stream", stream.ID(ctx)),
		slog.String("hop", h.Name),
		slog.String("reason", o.reason().String()),
		slog.String("origin", o.path().Origin()),
		slog.String("path", o.path().String()),
		slog.Duration("took", time.Since(begun)),
	}
	if o.err != nil {
		attrs = append(attrs, slog.String("message", o.err.Text()))
	} else {
		attrs = append(attrs,
			slog.Uint64("prompt_tokens", uint64(o.end.GetUsage().GetPromptTokens())),
			slog.Uint64("completion_tokens", uint64(o.end.GetUsage().GetCompletionTokens())))
	}
	h.Log.LogAttrs(ctx, slog.LevelInfo, "stream ended", attrs...)
}

// panicked turns a panic into the ending of the stream that it happened in, and prints its stack once.
func (h *Hop) panicked(ctx context.Context, v any) *streamerr.Error {
	h.Log.ErrorContext(ctx, "panic in a stream", "stream", stream.ID(ctx), "hop", h.Name, "panic", v, "stack", string(debug.Stack()))
	return streamerr.New(streamerr.Internal, "a bug in %s ended this stream; its log has the details", h.Name)
}
