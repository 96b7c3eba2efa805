package edge

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/operate"
	"github.com/whence-dev/whence/api-service/edge/sse"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Headers of requests and responses that have to do with streams that are kept.
const (
	idempotencyHeader = "Idempotency-Key"
	tokenHeader       = "X-Read-Token"
)

// exposed are the headers of responses that pages of other origins may read, beside X-Request-Id.
const exposed = tokenHeader + ", Location, Retry-After, Server, Via"

// maxKey bounds an idempotency key, in bytes.
const maxKey = 255

const (
	// retryAfter is the reconnection delay that readers are told.
	retryAfter = time.Second
	// readerGrace is the time that a dismissed reader has to read data in flight. Then its connection is closed.
	readerGrace = 100 * time.Millisecond
)

// keep makes room for what a stream says. key and body are those of an idempotent request, or empty.
func (e *Edge) keep(ctx context.Context, in *call.Call, key, body string) (*replay.Head, error) {
	id, owner := in.Request.GetStreamId(), in.Request.GetClaim().GetOwner()
	if key != "" {
		key = follow.Digest(owner, key) // owners do not share keys
	}
	h, err := e.replay.Begin(ctx, replay.Head{ID: id, Epoch: replay.NewEpoch(), Owner: owner, Key: key, Body: body, Edge: e.hop.Name, Began: time.Now()})
	switch {
	case errors.Is(err, replay.ErrFull):
		return nil, noRoom(err)
	case errors.Is(err, replay.ErrTaken):
		return nil, streamerr.InvalidParam(exchange.IDHeader, "a stream with the %s %q is kept; leave it out, or make it unique", exchange.IDHeader, id)
	case err != nil:
		return nil, err
	}
	return &h, nil
}

// made returns the answer to the maker of a kept stream.
func (e *Edge) made(h replay.Head) follow.Made {
	ttl := e.config.TokenTTL
	if ttl == 0 {
		ttl = DefaultTokenTTL
	}
	expires := time.Now().Add(ttl)
	return follow.Made{ID: h.ID, Events: "/v1/streams/" + h.ID + "/events", ExpiresAt: expires, Token: e.keyring.Token(h.ID, h.Epoch, expires), Resumable: h.Shared}
}

// offerToken adds a read token to the headers of a response. It is called for a stream that has started, or whose
// headers are sent with status 200 before it starts, and never for a refused stream.
func (e *Edge) offerToken(c *app.RequestContext, h replay.Head) {
	c.Header(tokenHeader, e.made(h).Token)
}

// makeStream is POST /v1/streams: a stream that runs independently of the request that made it. The client cannot
// choose its id, because without keys the id of a stream that was made without credentials is enough to read it.
func (e *Edge) makeStream(conn context.Context, c *app.RequestContext) {
	id := stream.NewID()
	c.Header(exchange.IDHeader, id)
	in, policy, body, err := e.readCall(c, openAI(openai.ParseStream), e.config.LeaveEvents)
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	key := string(c.GetHeader(idempotencyHeader))
	if len(key) > maxKey {
		e.desk.Refuse(c, streamerr.InvalidParam(idempotencyHeader, "%s has %d bytes; at most %d are allowed", idempotencyHeader, len(key), maxKey))
		return
	}
	digest := follow.Digest(string(body))
	in.Request.StreamId = id
	head, err := e.keep(conn, in, key, digest)
	switch {
	case err != nil:
		e.desk.Refuse(c, err)
		return
	case head.ID != id && head.Body != digest:
		e.desk.Refuse(c, exchange.WithStatus(http.StatusConflict, streamerr.InvalidParam(idempotencyHeader, "the %s was used for another request", idempotencyHeader)))
		return
	case head.ID != id:
		c.Header(exchange.IDHeader, head.ID)
		c.Data(http.StatusOK, "application/json", e.made(*head).JSON())
		return
	}
	ctx, r, err := e.begin(exchange.Traced(conn, c), c, in, policy, head)
	if err != nil {
		e.replay.Forget(conn, id, head.Epoch)
		e.desk.Refuse(c, err)
		return
	}
	if refused := e.background(ctx, in, r); refused != nil {
		e.replay.Forget(conn, id, head.Epoch)
		exchange.Error(c, refused.Reason.HTTPStatus(), exchange.Outward(in.Param, refused))
		return
	}
	c.Header("Location", "/v1/streams/"+id+"/events")
	c.Data(http.StatusCreated, "application/json", e.made(*head).JSON())
}

// renewToken is POST /v1/streams/{id}/token: a new read token, for a caller that reads the stream without one.
func (e *Edge) renewToken(conn context.Context, c *app.RequestContext) {
	id := c.Param("id")
	exchange.ID(c)
	caller, err := e.caller(c)
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	r, err := e.open(conn, caller, id, "")
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	defer r.Close()
	if err := e.guard.Read(caller, r.Head(), ""); err != nil {
		e.desk.Refuse(c, err)
		return
	}
	c.Data(http.StatusCreated, "application/json", e.made(r.Head()).JSON())
}

// background runs a stream in a goroutine of the edge, which Serve waits for, and returns when it has started. It returns the
// error of one that is refused instead, if that is known in time.
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

// followStream is GET /v1/streams/{id}/events. It starts no work.
func (e *Edge) followStream(conn context.Context, c *app.RequestContext) {
	id := c.Param("id")
	if exchange.ID(c); stream.ValidID(id) {
		c.Header(exchange.IDHeader, id)
	}
	r, after, err := e.openReader(conn, c, id)
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	defer r.Close()
	p, err := r.Read(conn, after)
	switch {
	case errors.Is(err, replay.ErrAhead):
		e.desk.Refuse(c, exchange.WithStatus(http.StatusConflict, streamerr.InvalidParam(follow.CursorHeader, "the stream has not said as much as the %s %d says", follow.CursorHeader, after)))
		return
	case err != nil:
		e.desk.Refuse(c, lost(id, err))
		return
	case p.Ended && len(p.Events) == 0:
		c.Status(http.StatusNoContent) // which tells EventSource to come back no more
		return
	}
	e.follow(conn, c, id, r, after)
}

// open finds a stream that is kept.
func (e *Edge) open(conn context.Context, caller access.Caller, id, token string) (replay.Reader, error) {
	if err := operate.CheckID(id); err != nil {
		return nil, err
	}
	r, err := e.replay.Open(conn, id)
	if err != nil {
		return nil, e.unread(caller, id, token, err)
	}
	return r, nil
}

// openReader finds a stream, checks its reader's credentials, and returns the number of the event that the reader has had last.
func (e *Edge) openReader(conn context.Context, c *app.RequestContext, id string) (replay.Reader, uint64, error) {
	caller, err := e.reader(c)
	if err != nil {
		return nil, 0, err
	}
	token := c.Query(follow.TokenParam)
	r, err := e.open(conn, caller, id, token)
	if err != nil {
		return nil, 0, err
	}
	err = e.guard.Read(caller, r.Head(), token)
	after := uint64(0)
	if err == nil {
		after, err = cursor(c, r.Head())
	}
	if err != nil {
		r.Close()
		return nil, 0, err
	}
	return r, after, nil
}

// cursor returns the number of the event that a reader has had last.
func cursor(c *app.RequestContext, h replay.Head) (after uint64, err error) {
	text := string(c.GetHeader(follow.CursorHeader))
	if text == "" { // the header is the newer one: EventSource keeps the URL when it comes back
		text = c.Query("last_event_id")
	}
	if text == "" {
		return 0, nil
	}
	cursor, err := follow.ParseCursor(text)
	switch {
	case err != nil:
		return 0, err
	case cursor.Epoch != h.Epoch:
		return 0, exchange.WithStatus(http.StatusConflict, streamerr.InvalidParam(follow.CursorHeader, "the %s %.64q is another stream's", follow.CursorHeader, text))
	}
	return cursor.Seq, nil
}

// unread returns the error for a stream that cannot be read. A caller that must not know of the stream gets the
// answer of Missing.
func (e *Edge) unread(caller access.Caller, id, token string, err error) error {
	if !errors.Is(err, replay.ErrUnknown) {
		return err
	}
	own := ledger.At(e.hop).Get(id)
	if own != nil && ledger.OwnedBy(own, e.guard.Owners(caller)...) || e.keyring.Known(id, token) {
		return exchange.NotKept(e.hop.Name, id, own)
	}
	return access.Missing(id)
}

// lost returns the error for a stream that has become unreadable while a reader had it open.
func lost(id string, err error) error {
	if !errors.Is(err, replay.ErrUnknown) {
		return err
	}
	return exchange.WithStatus(http.StatusGone, streamerr.New(streamerr.NotFound, "what the stream %q said is not kept any more", id))
}

// follow writes events until the reader has the last one, or leaves, or is cut because it does not read.
func (e *Edge) follow(conn context.Context, c *app.RequestContext, id string, r replay.Reader, after uint64) {
	begun := time.Now()
	ctx, control := stream.WithControl(conn, readerGrace)
	defer control.Release()
	remove, err := e.readers.Add(stream.NewID(), control)
	if err != nil {
		e.desk.Refuse(c, e.noReader(err))
		return
	}
	defer remove()
	cut := func(cause *streamerr.Error) { control.Kill(cause) }
	client := clientconn.Take(c)
	defer client.GiveBack()
	client.BoundSilence(e.config.ClientTimeout, cut)
	client.EndWith(ctx)
	reading, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	defer stream.AfterStop(ctx, leave)()
	left, head := func(*streamerr.Error) {}, r.Head()
	if own := e.runs.find(id); own != nil && own.epoch == head.Epoch { // else another stream of the same id runs
		left = own.watch.Enter()
	}
	d := e.delivers(c, id, &head)
	d.Part = after > 0
	defer e.deliveries.Close(d)
	w := sse.New(c, retryAfter, e.config.KeepAlive, nil, func(err error) { cut(e.unwritten(err)) })
	sink := func(id, name string, data []byte) error {
		if err := w.Event(id, name, data); err != nil {
			return e.unwritten(err)
		}
		if name == string(replay.Delta) {
			d.Sent()
		}
		return nil
	}
	end := follow.End{After: after}
	if err = w.Retry(retryAfter); err != nil {
		err = e.unwritten(err)
	} else {
		end, err = follow.Follow(reading, r, after, sink)
	}
	w.Close()
	cause := e.whyLeft(ctx, r.Head(), end, err)
	if end.Closed {
		left(nil)
	} else {
		left(cause)
	}
	e.log.Info("reader left", "stream", id, "hop", e.hop.Name, "reason", cause.Reason.String(), "message", cause.Text(),
		"last", follow.Cursor{Epoch: r.Head().Epoch, Seq: end.After}.String(), "events", end.Events, "took", time.Since(begun))
	if err != nil || w.Finish() != nil {
		_ = c.GetConn().Close() // the stream has not ended, whatever became of its reader
	}
}

// whyLeft says why a reader reads no more.
func (e *Edge) whyLeft(ctx context.Context, h replay.Head, end follow.End, err error) *streamerr.Error {
	cause := stream.Cause(ctx)
	switch {
	case end.Closed:
		return streamerr.New(streamerr.Completed, "the reader has the ending")
	case errors.Is(cause, context.Canceled):
		return clientconn.Gone()
	case cause != nil:
		return streamerr.As(cause)
	default:
		return streamerr.As(lost(h.ID, err))
	}
}

// noReader says why there is no place for a reader.
func (e *Edge) noReader(err error) *streamerr.Error {
	if errors.Is(err, stream.ErrClosed) {
		return e.drains()
	}
	return &streamerr.Error{Reason: streamerr.Overloaded, Message: "too many readers", RetryAfter: retryAfter}
}

// drains is why readers end when the process does.
func (e *Edge) drains() *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Draining, Message: e.hop.Name + " is shutting down", RetryAfter: retryAfter}
}
