// Package heir continues kept streams whose api-service has died, or has handed them over.
//
// The replay log chooses one instance, and fences the writes of all others. The chosen instance
// tells the chat-services to end the stream of the earlier instance, and asks one of them to
// continue the answer after the last event of the log. A stream that no instance can continue ends
// with PEER_LOST or DRAINING, whose origin is the earlier instance.
package heir

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/chats"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/position"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// stopTimeout bounds how long the chat-services may take to end the stream of the earlier instance.
// A chat-service that does not answer in time is hung, and refuses the stream or is avoided.
const stopTimeout = 500 * time.Millisecond

// An Heir continues the streams of other instances.
type Heir struct {
	Hop    *rpc.Hop
	Chats  *chats.Fleet
	Replay replay.Log
	Log    *slog.Logger
	// Run runs a stream with the items of engine to its ending. An error means that the stream has
	// not begun.
	Run func(ctx context.Context, r *Request, o replay.Orphan, engine chats.Engine) error
}

// Lost returns the closing event of a stream whose instance has died and that the hop named name
// does not continue.
func Lost(name string) func(replay.Head) replay.Event {
	return func(h replay.Head) replay.Event {
		return follow.Failed(streamerr.Via(name, cause(replay.Orphan{Head: h})))
	}
}

// cause returns why the earlier instance no longer runs a stream.
func cause(o replay.Orphan) *streamerr.Error {
	if o.HandedOver {
		return &streamerr.Error{Reason: streamerr.Draining, Path: streamerr.NewPath(o.Head.Edge), Message: o.Head.Edge + ", which ran the stream, has shut down"}
	}
	return &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(o.Head.Edge), Message: o.Head.Edge + ", which ran the stream, has died"}
}

// Continue continues a stream, and returns when it has ended.
func (h *Heir) Continue(o replay.Orphan) {
	r, err := Decode(o.Head.Form, o.Head.Request)
	if err != nil {
		h.end(o, err)
		return
	}
	told, err := position.Read(call.Choices(r.Chat), notes(o.Deltas))
	if err != nil {
		h.end(o, err)
		return
	}
	why, head := cause(o), o.Head
	engine := h.Chats.Resume(chats.Interruption{From: o.Head.Edge, Cause: why, Delivered: told})
	if !o.HandedOver { // a handover means that the earlier instance has stopped the stream itself
		engine = behind(func() { h.stopBelow(head, why) }, engine)
	}
	ctx := rpc.WithAge(streamtrace.WithParent(context.Background(), r.Trace), o.Age)
	o.Deltas, o.Head.Request, head.Request = nil, "", "" // release them: they may be large, and the stream may last long
	if err := h.Run(ctx, r, o, engine); err != nil {
		h.end(o, err)
	}
}

// behind returns an engine that calls first, then next. Readers can already read the stream while
// first runs.
func behind(first func(), next chats.Engine) chats.Engine {
	return func(ctx context.Context, req *chatv1.ChatRequest, to stream.Reader[*chatv1.GenerateResponse]) {
		first()
		next(ctx, req, to)
	}
}

// notes yields the notes of events.
func notes(events []replay.Event) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, e := range events {
			if !yield(e.Note) {
				return
			}
		}
	}
}

// stopBelow ends the stream of the earlier instance on the chat-services: that instance may be
// hung, or may have lost only its connection to the log.
func (h *Heir) stopBelow(head replay.Head, why *streamerr.Error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	// An error means that no chat-service runs the stream, or that one does not answer.
	_, _ = h.Chats.Stop(ctx, &chatv1.StopRequest{Stream: &streamv1.StopStreamRequest{StreamId: head.ID, Stop: h.Hop.StopBelow(why)}})
}

// end ends a stream that cannot be continued here. If this instance is shutting down or full, it
// hands the stream over to another instance instead.
func (h *Heir) end(o replay.Orphan, err error) {
	id, epoch := o.Head.ID, o.Head.Epoch
	failure := streamerr.As(err)
	reason := failure.Reason
	if (reason == streamerr.Draining || reason == streamerr.Overloaded) && h.Replay.HandOver(context.Background(), id, epoch) {
		return
	}
	why := cause(o)
	why.Message += ", and " + h.Hop.Name + " cannot continue it"
	if reason != streamerr.Internal || failure.Message != "" { // otherwise only the log has it: it is in the words of a library
		why.Message += ": " + failure.Text()
	}
	h.Log.Warn("a kept stream ends with its api-service", "stream", id, "hop", h.Hop.Name, "from", o.Head.Edge, "err", err)
	_ = h.Replay.Append(id, epoch, follow.Failed(streamerr.Via(h.Hop.Name, why))) // fails if the stream was forgotten
}

// Fenced returns the ending, on the hop named name, of a stream that another instance has ended or
// taken over.
func Fenced(name string) *streamerr.Error {
	return &streamerr.Error{
		Reason: streamerr.PeerLost, Path: streamerr.NewPath(name),
		Message: "other instances considered " + name + " dead, and one of them has the stream now: read its events",
	}
}

// StopCause returns the cause with which an instance has asked, through the replay log, for a stream of
// the hop named name to stop. The instance that asked may be this one, if it has taken the stream over
// since. Then the path ends with this hop, which adds itself again to the ending of the stream, so
// StopCause removes it.
func StopCause(name, text string) *streamerr.Error {
	cause, ok := streamerr.ParseJSON([]byte(text))
	if !ok {
		return streamerr.New(streamerr.UserStop, "another instance asked for the stream to stop")
	}
	cause.Path = cause.Path.TrimHop(name)
	return cause
}
