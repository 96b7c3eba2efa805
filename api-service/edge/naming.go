package edge

import (
	"context"
	"sync"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/heir"
	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// A naming is the id of a run. It may change until the client knows it: another api-service may have a
// stream of the same name, and the chat-service then refuses the second one.
type naming struct {
	mu    sync.Mutex // guards the following fields
	id    string
	epoch string // of the replay log
	told  bool   // the client knows the id
}

// now returns the id of the run, and the epoch of its replay log.
func (n *naming) now() (id, epoch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id, n.epoch
}

// tell is now for an id that the client learns. It does not change any more.
func (n *naming) tell() (id, epoch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = true
	return n.id, n.epoch
}

// rename gives the stream of ctx another id, which begins with the client's name, and moves its replay log, if
// head is not nil, to that id. It reports false if the client knows the id already. The goroutine that drives
// the stream calls it, before anything has come from below; it may wait for Redis.
func (r *run) rename(ctx context.Context, in *call.Call, p leave.Policy, head *replay.Head) bool {
	n, e := &r.naming, r.edge
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told {
		return false
	}
	from, to := n.id, exchange.Caller(ctx).Another(n.id)
	in.Request.StreamId = to
	if head != nil {
		if err := r.moveLog(ctx, in, p, head); err != nil {
			e.log.Debug("the log of a stream whose id is taken cannot be moved", "stream", from, "hop", e.hop.Name, "err", err)
			in.Request.StreamId = from
			return false
		}
		n.epoch = head.Epoch
	}
	e.runs.set(from, nil) // before another stream may have the old id
	e.hop.Live.Rename(from, to)
	stream.Rename(ctx, to)
	r.record.Rename(to)
	n.id = to
	e.runs.set(to, r)
	r.serves(in, to)
	return true
}

// moveLog replaces the empty replay log of head by one with the id of the request, and sets head to its head.
func (r *run) moveLog(ctx context.Context, in *call.Call, p leave.Policy, head *replay.Head) error {
	next := *head
	next.ID, next.Epoch = in.Request.GetStreamId(), replay.NewEpoch()
	heir.Bequeath(&next, in, p, streamtrace.ParentOf(ctx), r.edge.config.maxRequest())
	began, err := r.edge.replay.Begin(ctx, next)
	if err != nil {
		return err
	}
	if err := r.keepEvents(in, &began); err != nil {
		r.edge.replay.Forget(ctx, began.ID, began.Epoch)
		return err
	}
	r.edge.replay.Forget(ctx, head.ID, head.Epoch)
	*head = began
	return nil
}

// serves tells the trace which answer the stream is.
func (r *run) serves(in *call.Call, id string) {
	r.record.Events().Serves(streamtrace.Client{Stream: in.Stream, Answer: in.IDPrefix + id, Conversation: in.Conversation, Earlier: in.Earlier})
}
