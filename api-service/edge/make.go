package edge

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/delivery"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/heir"
	"github.com/whence-dev/whence/api-service/edge/storage"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// Headers of requests and responses for kept streams.
const (
	idempotencyHeader = "Idempotency-Key"
	tokenHeader       = "X-Read-Token"
)

// exposed lists the response headers that pages of other origins may read, besides X-Request-Id.
const exposed = tokenHeader + ", Location, Retry-After, Server, Via, request-id, " + exchange.IgnoredHeader

// maxKey bounds an idempotency key, in bytes.
const maxKey = 255

// keep begins the replay log of a stream. A stream whose id another stream has gets an id of its
// own. key and body are the idempotency key of the request and
// the digest of its body, or empty.
func (e *Edge) keep(ctx context.Context, c *app.RequestContext, in *call.Call, p leave.Policy, key, body string) (*replay.Head, error) {
	owner := in.Request.GetClaim().GetOwner()
	if key != "" {
		key = follow.Digest(owner, key) // each owner has its own keys
	}
	if e.hop.Live.Has(in.Request.GetStreamId()) {
		in.Request.StreamId = exchange.Rename(ctx, c, in.Request.GetStreamId())
	}
	head := replay.Head{ID: in.Request.GetStreamId(), Epoch: replay.NewEpoch(), Owner: owner, Key: key, Body: body, Edge: e.hop.Name, Began: time.Now()}
	if in.Store != nil {
		head.Memo = in.Store.Memo(head.Began)
		switch tooLong := len(head.Memo) > e.config.maxMemo(); {
		case tooLong && in.Store.Optional:
			head.Memo = ""
			dropStorage(in)
		case tooLong:
			return nil, streamerr.InvalidParam("store", "the conversation has %d bytes; a response with at most %d can be stored (half of --replay-stream-bytes)", len(head.Memo), e.config.maxMemo())
		}
	}
	heir.Bequeath(&head, in, p, streamtrace.ParentOf(ctx), e.config.maxRequest())
	h, err := e.replay.Begin(ctx, head)
	if errors.Is(err, replay.ErrTaken) {
		in.Request.StreamId = exchange.Rename(ctx, c, head.ID)
		head.ID = in.Request.GetStreamId()
		heir.Bequeath(&head, in, p, streamtrace.ParentOf(ctx), e.config.maxRequest()) // with the new id
		h, err = e.replay.Begin(ctx, head)
	}
	switch {
	case errors.Is(err, replay.ErrFull):
		return nil, noRoom(err)
	case err != nil:
		return nil, err
	}
	return &h, nil
}

// dropStorage makes the answer to a request that does not ask for storage one that is not stored.
func dropStorage(in *call.Call) {
	if in.Store != nil && in.Store.Optional {
		in.Store.Drop()
		in.Store = nil
	}
}

// freeID gives a stream that will be stored when it has ended another id if the request names that of a
// kept stream: later requests would get the answer of that stream.
func (e *Edge) freeID(conn context.Context, c *app.RequestContext, in *call.Call) {
	id := in.Request.GetStreamId()
	if string(c.GetHeader(exchange.IDHeader)) == "" && in.ID == "" {
		return
	}
	if kept, err := e.replay.Open(conn, id); err == nil {
		kept.Close()
		in.Request.StreamId = exchange.Rename(conn, c, id)
	}
}

// storeEnded stores the answer to a request that does not ask for storage, before its ending is sent. So
// the log costs a token nothing, and ends no stream. An answer for which there is no room is not stored,
// and says so.
func (e *Edge) storeEnded(ctx context.Context, in *call.Call, end *chatv1.GenerateResponse) {
	began, items := in.Store.Items()
	head := replay.Head{
		ID: in.Request.GetStreamId(), Epoch: replay.NewEpoch(), Owner: in.Request.GetClaim().GetOwner(), Edge: e.hop.Name, Began: began, Memo: in.Store.Memo(began),
	}
	if len(head.Memo) > e.config.maxMemo() {
		dropStorage(in)
		return
	}
	if err := e.recordWhole(ctx, in, head, append(items, end)); err != nil {
		dropStorage(in)
		e.log.Debug("an answer is not stored", "stream", head.ID, "hop", e.hop.Name, "err", err)
	}
}

// storeTimeout bounds how long the ending of an answer waits for Redis. After that the answer is stored
// on this instance only.
const storeTimeout = time.Second

// recordWhole begins the replay log of a stream, and appends all items of the stream.
func (e *Edge) recordWhole(ctx context.Context, in *call.Call, head replay.Head, items []*chatv1.GenerateResponse) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	h, err := e.replay.Begin(ctx, head)
	if err != nil {
		return err
	}
	log, err := e.replay.Writer(h.ID, h.Epoch)
	if err == nil {
		recorder := follow.NewRecorder(log, in.NamesChoices(), in.EndedAt)
		for i := 0; err == nil && i < len(items); i++ {
			_, err = recorder.Record(items[i])
		}
	}
	if err != nil {
		e.replay.Forget(ctx, h.ID, h.Epoch)
	}
	return err
}

// keepAnswer begins the replay log of the answer to a request, if its policy or its API keeps the
// answer from its beginning.
func (e *Edge) keepAnswer(conn context.Context, c *app.RequestContext, in *call.Call, p leave.Policy) (*replay.Head, error) {
	if !p.Keeps() && (in.Store == nil || in.Store.Optional) {
		return nil, nil //nolint:nilnil // no log is needed, which is not an error
	}
	return e.keep(exchange.Traced(conn, c), c, in, p, "", "")
}

// continueEarlier adds the conversation that a request continues, and the items that it only names.
// memory may be nil.
func (e *Edge) continueEarlier(conn context.Context, c *app.RequestContext, in *call.Call, memory storage.Memory) error {
	if in.Earlier == "" && len(in.References) == 0 {
		return nil
	}
	complete, err := e.storage.Continue(conn, exchange.Caller(conn), in, memory)
	if err != nil {
		return err
	}
	if !complete {
		if err := e.desk.Leave(c, in, "input[].item_reference"); err != nil {
			return err
		}
	}
	if size := proto.Size(in.Request); int64(size) > e.config.MaxBody { // the same bound as for a client that sends the whole conversation
		return streamerr.InvalidParam("previous_response_id", "the conversation has %d bytes with its earlier items; at most %d are allowed", size, e.config.MaxBody)
	}
	return nil
}

// answerBehind answers a request whose stream does not depend on the request's connection. The
// response is either the stream of events, which the client can resume after the last event that it
// received, or the answer in its current state.
func (e *Edge) answerBehind(ctx, conn context.Context, c *app.RequestContext, in *call.Call, r *run, kept *replay.Head) {
	if refused := e.background(ctx, in, r); refused != nil {
		r.forget(conn)
		exchange.Error(c, refused.Reason.HTTPStatus(), exchange.Outward(in.Param, refused))
		return
	}
	id, _ := r.naming.tell()
	exchange.SetID(&c.Response.Header, exchange.Form(c), id)
	e.offerToken(&c.Response.Header, *kept)
	if err := e.storage.Answer(conn, c, *kept, in.Stream); err != nil {
		e.desk.Refuse(c, err)
	}
}

// offerToken adds a read token to the headers of a response. The stream has started, or its headers
// are sent with status 200 before it starts. A refused stream gets no token.
func (e *Edge) offerToken(to *protocol.ResponseHeader, h replay.Head) {
	to.Set(tokenHeader, e.readers.Made(h).Token)
}

// delivers begins the record of how a stream is sent to the caller of conn. kept is the head of a
// stream that can be read again, or nil.
func (e *Edge) delivers(conn context.Context, id string, kept *replay.Head) *delivery.Delivery {
	if kept != nil {
		return e.deliveries.Open(delivery.Of(*kept))
	}
	return e.deliveries.Open(&delivery.Delivery{ID: id, Owner: exchange.Caller(conn).Owner})
}

// makeStream handles POST /v1/streams: it creates a stream that runs independently of its request.
// The client cannot choose the id: without keys, the id of a stream that was created without
// credentials is enough to read it.
func (e *Edge) makeStream(conn context.Context, c *app.RequestContext) {
	id := stream.NewID()
	c.Header(exchange.IDHeader, id)
	in, policy, body, err := e.readCall(conn, c, openAI(openai.ParseStream), e.config.LeaveEvents)
	key := string(c.GetHeader(idempotencyHeader))
	if err == nil && len(key) > maxKey {
		err = streamerr.InvalidParam(idempotencyHeader, "%s has %d bytes; at most %d are allowed", idempotencyHeader, len(key), maxKey)
	}
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	in.Request.StreamId = id
	ctx, r, head, err := e.beginStream(conn, c, in, policy, key, follow.Digest(string(body)))
	switch {
	case err != nil:
		e.desk.Refuse(c, err)
		return
	case r == nil:
		c.Header(exchange.IDHeader, head.ID)
		c.Data(http.StatusOK, "application/json", e.readers.Made(*head).JSON())
		return
	}
	r.naming.tell() // the id is random
	if refused := e.background(ctx, in, r); refused != nil {
		e.refuse(conn, in, *head, refused)
		exchange.Error(c, refused.Reason.HTTPStatus(), exchange.Outward(in.Param, refused))
		return
	}
	c.Header("Location", "/v1/streams/"+id+"/events")
	c.Data(http.StatusCreated, "application/json", e.readers.Made(*head).JSON())
}

// beginStream begins a kept stream, unless a stream with the idempotency key is kept. Then the run
// is nil, and head is that of the kept stream. A request over a limit of its key still finds the
// stream that an earlier try has begun, because a client that lost the response would otherwise
// wait for its own stream to end. Such a request fetches no image.
func (e *Edge) beginStream(conn context.Context, c *app.RequestContext, in *call.Call, p leave.Policy, key, digest string) (ctx context.Context, r *run, head *replay.Head, err error) {
	traced := exchange.Traced(conn, c)
	grant, over := e.meter.Enter(traced, c)
	defer func() {
		if r == nil {
			grant.End(0)
		}
	}()
	if over != nil && key == "" {
		return nil, nil, nil, over
	}
	if over == nil {
		if err = e.fill(conn, c, in); err != nil {
			return nil, nil, nil, err
		}
	}
	head, err = e.keep(traced, c, in, p, key, digest)
	id := in.Request.GetStreamId()
	switch {
	case err != nil:
		return nil, nil, nil, err
	case head.ID != id && head.Body != digest:
		return nil, nil, nil, exchange.WithStatus(http.StatusConflict, streamerr.InvalidParam(idempotencyHeader, "the %s was used for another request", idempotencyHeader))
	case head.ID != id:
		return nil, nil, head, nil
	case over != nil:
		err = over
	default:
		ctx, r, err = e.begin(traced, c, grant, in, p, head)
	}
	if err != nil {
		e.refuse(conn, in, *head, streamerr.Via(e.hop.Name, err))
	}
	return ctx, r, head, err
}

// refuse ends the log of a stream that is refused with an error. If the stream has an idempotency
// key, a retry may have got the receipt of the stream already, from any instance. So readers get the
// error, and the next retry can use the key. Without a key, no client has the receipt.
func (e *Edge) refuse(ctx context.Context, in *call.Call, h replay.Head, err *streamerr.Error) {
	if h.Key == "" {
		e.replay.Forget(ctx, h.ID, h.Epoch)
		return
	}
	e.replay.Refuse(ctx, h.ID, h.Epoch, follow.Failed(exchange.Outward(in.Param, err)))
}

// background runs a stream in a goroutine of the edge, which Drain waits for, and returns when the
// stream has started. If the stream is refused in time, background returns the error.
func (e *Edge) background(ctx context.Context, in *call.Call, r *run) *streamerr.Error {
	r.admitted = make(chan struct{})
	r.absent.Store(true)
	refused := make(chan *streamerr.Error, 1)
	e.behind.Go(func() {
		defer r.close()
		if o := r.drive(ctx, in, nil); !r.started {
			refused <- o.Err
		}
	})
	late := time.NewTimer(e.config.HeadersAfter)
	defer late.Stop()
	select {
	case err := <-refused:
		return err
	case <-r.admitted:
	case <-late.C:
	}
	return nil
}
