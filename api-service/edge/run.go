package edge

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/chats"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/meter"
	"github.com/whence-dev/whence/api-service/edge/readers"
	"github.com/whence-dev/whence/api-service/extent"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/api-service/quota"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A run is a stream of this edge, from its admission to its ending.
type run struct {
	edge     *Edge
	engine   chats.Engine
	naming   naming
	recorder *follow.Recorder                   // writes the stream's events into the replay log; nil if the stream is not kept
	stored   bool                               // later requests read the log, whatever the leave policy
	ends     func(end *chatv1.GenerateResponse) // called before the ending is written; it may be nil
	// outlives reports that the stream continues after the client that asked for it has left.
	outlives bool
	watch    *leave.Watch
	control  *stream.Control
	record   *ledger.Record
	end      func()

	absent   atomic.Bool                  // the client that asked for the stream does not read it, or has left
	leave    func(cause *streamerr.Error) // records that this client has left; nil if it was absent from the start
	taken    func() extent.Extent         // how much of the answer this client has
	admitted chan struct{}                // closed when the stream has started; nil if no goroutine waits for that

	// Owned by the goroutine that drives the stream.
	started bool
	held    []*chatv1.GenerateResponse // items that arrived after the stop
	size    int                        // of held, in bytes of text
}

// maxHeld bounds the items held after a stop, in bytes. Few items are in flight then; a callee that
// sends more does not obey the stop.
const maxHeld = 64 << 10

// runs are the live streams by id.
type runs struct {
	mu   sync.Mutex
	byID map[string]*run
}

func (r *runs) set(id string, to *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[string]*run{}
	}
	if to == nil {
		delete(r.byID, id)
		return
	}
	r.byID[id] = to
}

func (r *runs) find(id string) *run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// enter counts a reader of the stream of h, if the stream runs here.
func (e *Edge) enter(h replay.Head) (leave func(cause *streamerr.Error)) {
	own := e.runs.find(h.ID)
	if own != nil {
		if _, epoch := own.naming.now(); epoch == h.Epoch { // otherwise it is another stream with the same id
			return own.watch.Enter()
		}
	}
	return func(*streamerr.Error) {}
}

// begin admits the stream of the request c. The stream's context has the values of the request's
// context, but does not end with it. With a head, which replay.Begin has returned, the stream's
// events are kept. The caller calls close, which ends the grant. After an error the caller ends the
// grant.
func (e *Edge) begin(conn context.Context, c *app.RequestContext, grant *quota.Grant, in *call.Call, p leave.Policy, head *replay.Head) (context.Context, *run, error) {
	r := &run{edge: e, engine: e.chat}
	if err := r.keepEvents(in, head); err != nil {
		return nil, nil, err
	}
	ctx, end, err := e.admit(conn, c, grant, &in.Request.StreamId, in.Request.GetClaim())
	if err != nil {
		return nil, nil, err
	}
	if head != nil && in.Request.GetStreamId() != head.ID { // a stream with the id began after keep
		if err := r.moveLog(ctx, in, p, head); err != nil {
			end()
			return nil, nil, err
		}
	}
	if head != nil {
		r.naming.epoch = head.Epoch
	}
	ctx = r.enroll(ctx, end, in, p)
	return chats.WithRename(ctx, func() bool { return r.rename(ctx, in, p, head) }), r, nil
}

// keepEvents has the run record its events in the log of head, if there is one.
func (r *run) keepEvents(in *call.Call, head *replay.Head) error {
	if head == nil {
		return nil
	}
	log, err := r.edge.replay.Writer(head.ID, head.Epoch)
	if err != nil {
		return readers.Lost(head.ID, err)
	}
	r.stored, r.recorder = head.Memo != "", follow.NewRecorder(log, in.NamesChoices(), in.EndedAt)
	return nil
}

// enroll makes the admitted stream of ctx one of the edge's live streams.
func (r *run) enroll(ctx context.Context, end func(), in *call.Call, p leave.Policy) context.Context {
	e := r.edge
	r.naming.id, r.end = in.Request.GetStreamId(), end
	control, record := stream.ControlOf(ctx), ledger.Of(ctx)
	r.control, r.record = control, record
	s := leave.Stream{Stop: func(cause *streamerr.Error) { control.Stop(cause) }}
	if r.kept() && !r.stored {
		s.Drop = func() { r.forget(context.WithoutCancel(ctx)) }
	}
	if r.kept() && e.config.Redis != "" {
		s.Seen = func() (time.Duration, bool) {
			id, _ := r.naming.now()
			return e.replay.Seen(context.WithoutCancel(ctx), id)
		}
	}
	r.watch, r.outlives = leave.New(p, s), p.Kind != leave.Cancel
	record.Leaves(p.String())
	record.Ignores(in.Ignored)
	r.serves(in, r.naming.id)
	e.runs.set(r.naming.id, r)
	return rpc.WithDeadline(ctx, in.Timeout)
}

// count applies the limits of the caller's key to a stream, and admits it.
func (e *Edge) count(conn context.Context, c *app.RequestContext, id *string, claim *llmv1.Claim) (ctx context.Context, end func(), err error) {
	ctx, _, end, err = e.countTalk(conn, c, id, claim)
	return ctx, end, err
}

// countTalk is count for a stream whose turns are charged to the grant one by one.
func (e *Edge) countTalk(conn context.Context, c *app.RequestContext, id *string, claim *llmv1.Claim) (ctx context.Context, grant *quota.Grant, end func(), err error) {
	if grant, err = e.meter.Enter(conn, c); err != nil {
		return nil, nil, nil, err
	}
	if ctx, end, err = e.admit(conn, c, grant, id, claim); err != nil {
		grant.End(0)
	}
	return ctx, grant, end, err
}

// recheckKeys is the time between two checks of the key of an open conversation.
const recheckKeys = 2 * time.Second

// identifies returns why a caller with this key may not make streams now, or nil.
func (e *Edge) identifies(conn context.Context, key string) error {
	caller, err := e.guard.Caller(conn, key)
	if err != nil {
		return err
	}
	return caller.Make()
}

// admit admits a stream under its id, with the claim of its caller. If another stream has the id,
// the stream gets one of its own, which the response tells: ids of clients only correlate requests. The stream's context has the
// values of the request's context, but does not end with it. end ends the grant. After an error the
// caller ends the grant.
func (e *Edge) admit(conn context.Context, c *app.RequestContext, grant *quota.Grant, id *string, claim *llmv1.Claim) (ctx context.Context, end func(), err error) {
	ctx, remove, err := e.hop.Begin(conn, id, claim.GetOwner(), e.desk.Peer(c), nil)
	if err != nil && streamerr.As(err).Param != "" { // a live stream has the id
		*id = exchange.Rename(conn, c, *id)
		ctx, remove, err = e.hop.Begin(conn, id, claim.GetOwner(), e.desk.Peer(c), nil)
	}
	if err != nil {
		return nil, nil, err
	}
	record := ledger.Of(ctx)
	record.Charge(claim.GetTenant(), claim.GetKey(), exchange.Surface(c))
	return ctx, func() {
		meter.Settle(grant, record)
		remove()
	}, nil
}

// enter records that the client that asked for the stream is reading it. taken returns how much of
// the answer the client has. left is called when the client leaves; nothing is written to the
// client after that. A client that has the whole answer does not end the stream.
func (r *run) enter(taken func() extent.Extent, left func()) {
	leave := r.watch.Enter()
	r.taken = taken
	r.leave = func(cause *streamerr.Error) {
		if !r.absent.CompareAndSwap(false, true) {
			return
		}
		has := taken()
		if r.control.Cause() == nil { // the client of a stopped stream counts as having stayed to the end
			r.record.Left(has)
		}
		if r.outlives {
			id, _ := r.naming.now()
			r.edge.log.Info("reader left", "stream", id, "hop", r.edge.hop.Name, "reason", cause.Reason.String(), "message", cause.Text(), "extent", ledger.Word(has))
		}
		if extent.Whole(has) && cause.Reason == streamerr.ClientGone { // a reset connection drops bytes that the kernel has accepted
			cause = nil
		}
		leave(cause)
		left()
	}
}

// kept reports that the stream's events go into the replay log.
func (r *run) kept() bool { return r.recorder != nil }

// finish closes a run after the client has read the ending, or has left.
func (r *run) finish(ctx context.Context) {
	if r.kept() && !r.started {
		r.forget(ctx) // the stream was refused
	}
	r.close()
}

// forget drops the replay log.
func (r *run) forget(ctx context.Context) {
	id, epoch := r.naming.now()
	r.edge.replay.Forget(ctx, id, epoch)
}

func (r *run) close() {
	r.watch.End()
	id, _ := r.naming.now()
	r.edge.runs.set(id, nil)
	r.end()
}

// drive runs the stream, and returns its outcome.
func (r *run) drive(ctx context.Context, in *call.Call, write writer) rpc.Outcome {
	ended := make(chan rpc.Outcome, 1)
	r.start(ctx, in, write, func(o rpc.Outcome) { ended <- o })
	return <-ended
}

// A writer passes an item to the client that asked for the stream, while that client is there. on
// carries the item.
type writer = func(on *stream.Loop, out *chatv1.GenerateResponse) error

// start starts the stream. ended is called with the outcome, on whichever goroutine ends the stream.
func (r *run) start(ctx context.Context, in *call.Call, write writer, ended func(rpc.Outcome)) {
	send := func(on *stream.Loop, out *chatv1.GenerateResponse) error {
		starts := out.GetStarted() != nil && !r.started
		if starts {
			r.started = true
			if !r.edge.repeats {
				defer in.ReleaseRequest()
			}
		}
		err := r.deliver(on, out, write)
		if starts && r.admitted != nil {
			close(r.admitted) // the log has the start now, which the waiter reads
		}
		return err
	}
	rpc.Start(prefetch.With(ctx, prefetch.Of(r), prefetch.Func(write)), r.edge.hop, methods.Chat, r.engine, in.Request, send, func(o rpc.Outcome) {
		r.noteFailure(ctx, in, o)
		ended(o)
	})
}

// noteFailure adds the error of the stream to the replay log, unless another instance continues the stream.
func (r *run) noteFailure(ctx context.Context, in *call.Call, o rpc.Outcome) {
	if o.Err == nil || !r.kept() {
		return
	}
	drains := o.Err.Reason == streamerr.Draining && o.Err.Path.Origin() == r.edge.hop.Name
	id, epoch := r.naming.now()
	if !drains || !r.edge.replay.HandOver(context.WithoutCancel(ctx), id, epoch) {
		// The error of Fail does not matter: the log always has room for endings.
		_ = r.recorder.Fail(exchange.Outward(in.Param, o.Err))
	}
}

// deliver passes an item on. Its errors are those of a send.
//
// Items that arrive after a stop were in flight already. If they are the rest of the answer, the
// stream has completed on every hop below, and so it completes here. Otherwise they are dropped: a
// stopped stream that can be read again gets no new tokens.
func (r *run) deliver(on *stream.Loop, out *chatv1.GenerateResponse, write writer) error {
	if !r.kept() {
		return r.pass(on, out, write)
	}
	if cause := r.control.Cause(); cause != nil && out.GetEnd() == nil {
		if r.size += proto.Size(out); r.size > maxHeld {
			return cause
		}
		r.held = append(r.held, proto.CloneOf(out)) // out is valid until deliver returns
		return rpc.ErrUndelivered
	}
	for _, late := range r.held {
		if err := r.pass(on, late, write); err != nil {
			return err
		}
		r.record.Sent(methods.Chat.Tokens(late), nil)
	}
	r.held = nil
	return r.pass(on, out, write)
}

// pass records an item, and writes it to the client that asked for the stream, unless the client
// has left.
func (r *run) pass(on *stream.Loop, out *chatv1.GenerateResponse, write writer) error {
	if err := r.keep(out); err != nil {
		return err
	}
	if r.ends != nil && out.GetEnd() != nil && !r.absent.Load() { // else the encoder has not seen the whole answer
		if r.edge.config.Redis != "" {
			on.Wait()
		}
		r.ends(out)
	}
	if !r.absent.Load() {
		err := write(on, out)
		if err == nil {
			return nil
		}
		gone := streamerr.As(err)
		r.leave(gone)
		if out.GetEnd() != nil && gone.Reason == streamerr.ClientGone && extent.Whole(r.taken()) {
			return nil // only the terminator is missing
		}
		if cause := r.control.Cause(); cause != nil {
			return cause
		}
	}
	if r.kept() {
		return nil
	}
	return rpc.ErrUndelivered
}

func (r *run) keep(out *chatv1.GenerateResponse) error {
	if !r.kept() {
		return nil
	}
	bytes, err := r.recorder.Record(out)
	switch {
	case errors.Is(err, replay.ErrUnknown):
		return rpc.ErrUndelivered // the leave policy has dropped the log
	case errors.Is(err, replay.ErrFull):
		return noRoom(err)
	case err != nil:
		return err
	}
	if r.absent.Load() { // otherwise the bytes are counted when they are written
		r.record.OutBytes(bytes)
	}
	return nil
}

// noRoom returns the error that ends or refuses a stream that does not fit into the replay log.
func noRoom(err error) *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Overloaded, Message: "the replay log has no room for the stream", RetryAfter: time.Second, Cause: err}
}
