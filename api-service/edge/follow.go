package edge

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/operate"
	"github.com/whence-dev/whence/api-service/edge/pulse"
	"github.com/whence-dev/whence/api-service/edge/sse"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Headers of requests and responses that have to do with streams that are kept.
const (
	idempotencyHeader = "Idempotency-Key"
	tokenHeader       = "X-Read-Token"
)

// maxKey bounds an idempotency key, in bytes.
const maxKey = 255

// retryAfter is how long a reader whose connection breaks waits before it comes back.
const retryAfter = time.Second

// keep makes room for what a stream says. key and body are those of an idempotent request, or empty.
func (e *Edge) keep(ctx context.Context, c *app.RequestContext, id, key, body string) (*replay.Head, error) {
	owner := follow.Digest(string(c.GetHeader(exchange.AuthorizationHeader)))
	if key != "" {
		key = follow.Digest(owner, key) // everybody has keys of their own
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

// made is what is said of a stream that is kept.
func (e *Edge) made(h replay.Head) follow.Made {
	ttl := e.config.TokenTTL
	if ttl == 0 {
		ttl = DefaultTokenTTL
	}
	expires := time.Now().Add(ttl)
	return follow.Made{ID: h.ID, Events: "/v1/streams/" + h.ID + "/events", ExpiresAt: expires, Token: e.keyring.Token(h.ID, expires), Resumable: h.Shared}
}

// makeStream is POST /v1/streams: a stream that runs without the request that made it. Its id is never the client's, since
// who knows it may be able to read the stream.
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
		err := streamerr.InvalidParam(idempotencyHeader, "%s has %d bytes; at most %d are allowed", idempotencyHeader, len(key), maxKey)
		e.desk.Refuse(c, err)
		return
	}
	digest := follow.Digest(string(body))
	head, err := e.keep(conn, c, id, key, digest)
	switch {
	case err != nil:
		e.desk.Refuse(c, err)
		return
	case head.ID != id && head.Body != digest:
		err := streamerr.InvalidParam(idempotencyHeader, "the %s was used for another request", idempotencyHeader)
		e.desk.Refuse(c, exchange.WithStatus(http.StatusConflict, err))
		return
	case head.ID != id:
		c.Header(exchange.IDHeader, head.ID)
		c.Data(http.StatusOK, "application/json", e.made(*head).JSON())
		return
	}
	in.Request.StreamId = id
	ctx, r, err := e.begin(exchange.Traced(conn, c), c, in, policy, head)
	if err != nil {
		e.replay.Forget(conn, id)
		e.desk.Refuse(c, err)
		return
	}
	if refused := e.background(ctx, in, r); refused != nil {
		e.replay.Forget(conn, id)
		exchange.Error(c, refused.Reason.HTTPStatus(), exchange.Outward(in.Param, refused))
		return
	}
	c.Header("Location", "/v1/streams/"+id+"/events")
	c.Data(http.StatusCreated, "application/json", e.made(*head).JSON())
}

// renewToken is POST /v1/streams/{id}/token: a new read token, for whoever can read the stream without one.
func (e *Edge) renewToken(conn context.Context, c *app.RequestContext) {
	id := c.Param("id")
	exchange.ID(c)
	r, err := e.open(conn, c, id)
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	defer r.Close()
	if err := e.keyring.May(r.Head(), string(c.GetHeader(exchange.AuthorizationHeader)), ""); err != nil {
		e.desk.Refuse(c, err)
		return
	}
	c.Data(http.StatusCreated, "application/json", e.made(r.Head()).JSON())
}

// owner tells whose a stream is that runs here, is kept, or has ended here. Live is false for the last: what runs elsewhere under
// its id may be somebody else's.
func (e *Edge) owner(ctx context.Context, id string) (owner string, live, known bool) {
	ended, known := e.hop.Ledger.Owner(id)
	if known && e.runs.find(id) != nil {
		return ended, true, true
	}
	r, err := e.replay.Open(ctx, id)
	if err != nil {
		return ended, false, known
	}
	defer r.Close()
	return r.Head().Owner, true, true
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
		err = streamerr.InvalidParam(follow.CursorHeader, "the stream has not said as much as the %s %d says", follow.CursorHeader, after)
		e.desk.Refuse(c, exchange.WithStatus(http.StatusConflict, err))
		return
	case err != nil:
		err = e.unread(c, id, err)
		e.desk.Refuse(c, err)
		return
	case p.Ended && len(p.Events) == 0:
		c.Status(http.StatusNoContent) // which tells EventSource to come back no more
		return
	}
	e.follow(conn, c, id, r, after)
}

// open finds a stream that is kept.
func (e *Edge) open(conn context.Context, c *app.RequestContext, id string) (replay.Reader, error) {
	if err := operate.CheckID(id); err != nil {
		return nil, err
	}
	r, err := e.replay.Open(conn, id)
	if err != nil {
		return nil, e.unread(c, id, err)
	}
	return r, nil
}

// openReader finds a stream, and checks who asks, and from where on.
func (e *Edge) openReader(conn context.Context, c *app.RequestContext, id string) (replay.Reader, uint64, error) {
	r, err := e.open(conn, c, id)
	if err != nil {
		return nil, 0, err
	}
	after, err := e.mayRead(c, r.Head())
	if err != nil {
		r.Close()
		return nil, 0, err
	}
	return r, after, nil
}

// mayRead checks a reader's credentials, then its cursor, which it returns.
func (e *Edge) mayRead(c *app.RequestContext, h replay.Head) (after uint64, err error) {
	if err := e.keyring.May(h, string(c.GetHeader(exchange.AuthorizationHeader)), c.Query(follow.TokenParam)); err != nil {
		return 0, err
	}
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

// unread says why a stream cannot be read.
func (e *Edge) unread(c *app.RequestContext, id string, err error) error {
	if !errors.Is(err, replay.ErrUnknown) {
		return err
	}
	if e.hop.Ledger.Get(id) != nil || e.keyring.Known(id, c.Query(follow.TokenParam)) {
		return exchange.WithStatus(http.StatusGone, streamerr.New(streamerr.NotFound, "what the stream %q said is not kept, or no more", id))
	}
	return streamerr.New(streamerr.NotFound, "there is no stream %q", id)
}

// follow writes events until the reader has the last one, or leaves, or is cut because it does not read.
func (e *Edge) follow(conn context.Context, c *app.RequestContext, id string, r replay.Reader, after uint64) {
	begun := time.Now()
	ctx, control := stream.WithControl(conn, 0)
	defer control.Release()
	remove, err := e.readers.Add(stream.NewID(), control)
	if err != nil {
		err = e.noReader(err)
		e.desk.Refuse(c, err)
		return
	}
	defer remove()
	cut := func(cause *streamerr.Error) { control.Kill(cause) }
	defer pulse.Feel(c.GetConn(), e.config.ClientTimeout, vanished(cut))()
	left := func(*streamerr.Error) {}
	if own := e.runs.find(id); own != nil {
		left = own.watch.Enter()
	}
	head := r.Head()
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
		end, err = follow.Follow(ctx, r, after, sink)
	}
	w.Close()
	cause := e.whyLeft(ctx, c, r.Head(), end, err)
	if !end.Closed {
		left(cause)
	}
	e.log.Info("reader left", "stream", id, "hop", e.hop.Name, "reason", cause.Reason.String(), "message", cause.Text(),
		"last", follow.Cursor{Epoch: r.Head().Epoch, Seq: end.After}.String(), "events", end.Events, "took", time.Since(begun))
	if err != nil {
		_ = c.GetConn().Close() // the stream has not ended, whatever became of its reader
	}
}

// whyLeft says why a reader reads no more.
func (e *Edge) whyLeft(ctx context.Context, c *app.RequestContext, h replay.Head, end follow.End, err error) *streamerr.Error {
	cause := stream.Cause(ctx)
	switch {
	case end.Closed:
		return streamerr.New(streamerr.Completed, "the reader has the ending")
	case errors.Is(cause, context.Canceled):
		return gone()
	case cause != nil:
		return streamerr.As(cause)
	default:
		return streamerr.As(e.unread(c, h.ID, err))
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
