// Package readers serves the clients that read kept streams: GET /v1/streams/{id}/events, and the
// read tokens for it.
package readers

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/delivery"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/operate"
	"github.com/whence-dev/whence/api-service/edge/websocket"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/gate"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// retryAfter is the reconnection delay that readers get.
const retryAfter = time.Second

// readerGrace is the time that a dismissed reader has to read data in flight. After it the
// connection is closed.
const readerGrace = 100 * time.Millisecond

// Readers serves the readers of one edge. Its fields must not change while it is in use.
type Readers struct {
	Name       string // the edge's name in paths and logs
	Log        *slog.Logger
	Desk       *exchange.Desk
	Keyring    *follow.Keyring
	Replay     replay.Log
	Ledger     *ledger.Ledger
	Deliveries *delivery.Book
	// Enter counts a reader of a stream that this edge runs. The caller calls leave when the reader
	// has left: with the cause, or with nil if the reader has the ending. For other streams leave
	// does nothing.
	Enter func(h replay.Head) (leave func(cause *streamerr.Error))
	Gate  *gate.Gate // decides which pages may open a WebSocket

	TokenTTL      time.Duration // of read tokens
	KeepAlive     time.Duration // time without an event after which a reader gets a comment; 0 means never
	ClientTimeout time.Duration // for a client's acknowledgement; 0 means no bound
	WriteTimeout  time.Duration // for one write to a client

	Live stream.Set // the connected readers

	clock coarse.Clock // of the timers of the readers' connections
}

// Tokened reports whether a read token is enough for a request, and the request has one: browsers'
// EventSource cannot send headers. The handler checks the token.
func Tokened(c *app.RequestContext) bool {
	rest, ok := strings.CutPrefix(string(c.Path()), "/v1/streams/")
	_, what, _ := strings.Cut(rest, "/")
	return ok && (what == "events" || what == "seen") && c.Query(follow.TokenParam) != ""
}

// Drain refuses new readers at once. When ctx is done it ends the remaining readers, such as
// readers of other instances' streams, which reconnect to another instance.
func (r *Readers) Drain(ctx context.Context) { r.Live.Drain(ctx, r.drains()) }

// Made returns the response to the client that created a kept stream.
func (r *Readers) Made(h replay.Head) follow.Receipt {
	expires := time.Now().Add(r.TokenTTL)
	return follow.Receipt{ID: h.ID, Events: "/v1/streams/" + h.ID + "/events", ExpiresAt: expires, Token: r.Keyring.Token(h.ID, h.Epoch, expires), Resumable: h.Shared}
}

// RenewToken handles POST /v1/streams/{id}/token: it issues a new read token to a caller that may
// read the stream without a token.
func (r *Readers) RenewToken(conn context.Context, c *app.RequestContext) {
	exchange.ID(c)
	caller := exchange.Caller(conn)
	id := caller.Refers(c.Param("id"))
	in, err := r.open(conn, caller, id, "")
	if err != nil {
		r.Desk.Refuse(c, err)
		return
	}
	defer in.Close()
	if err := caller.Read(in.Head(), ""); err != nil {
		r.Desk.Refuse(c, err)
		return
	}
	c.Data(http.StatusCreated, "application/json", r.Made(in.Head()).JSON())
}

// Events handles GET /v1/streams/{id}/events: with server-sent events or, if the request asks for
// it, over a WebSocket. It starts no engine work.
func (r *Readers) Events(conn context.Context, c *app.RequestContext) {
	id := exchange.Caller(conn).Refers(c.Param("id"))
	if exchange.ID(c); stream.ValidID(id) {
		c.Header(exchange.IDHeader, id)
	}
	in, after, err := r.openReader(conn, c, id)
	if err != nil {
		r.refuse(c, err)
		return
	}
	defer in.Close()
	p, err := in.Read(conn, after)
	socket := websocket.Requested(c)
	switch {
	case errors.Is(err, replay.ErrAhead):
		r.refuse(c, exchange.WithStatus(http.StatusConflict, streamerr.InvalidParam(follow.CursorHeader, "the stream has no event with the %s %d yet", follow.CursorHeader, after)))
		return
	case err != nil:
		r.refuse(c, Lost(id, err))
		return
	case socket:
		r.overSocket(conn, c, id, in, after)
		return
	case p.Ended && len(p.Events) == 0:
		c.Status(http.StatusNoContent) // makes EventSource stop reconnecting
		return
	}
	r.follow(conn, c, id, in, after, &eventStream{keepAlive: r.KeepAlive})
}

// open opens a kept stream.
func (r *Readers) open(conn context.Context, caller access.Caller, id, token string) (replay.Reader, error) {
	if err := operate.CheckID(id); err != nil {
		return nil, err
	}
	in, err := r.Replay.Open(conn, id)
	if err != nil {
		return nil, r.unread(caller, id, token, err)
	}
	return in, nil
}

// openReader opens a stream, checks its reader's credentials, and returns the number of the last
// event that the reader has received.
func (r *Readers) openReader(conn context.Context, c *app.RequestContext, id string) (replay.Reader, uint64, error) {
	caller, token := exchange.Caller(conn), c.Query(follow.TokenParam)
	in, err := r.open(conn, caller, id, token)
	if err != nil {
		return nil, 0, err
	}
	err = caller.Read(in.Head(), token)
	after := uint64(0)
	if err == nil {
		after, err = cursor(c, in.Head())
	}
	if err != nil {
		in.Close()
		return nil, 0, err
	}
	return in, after, nil
}

// cursor returns the number of the last event that a reader has received.
func cursor(c *app.RequestContext, h replay.Head) (after uint64, err error) {
	text := string(c.GetHeader(follow.CursorHeader))
	if text == "" { // the header is newer: EventSource keeps the URL when it reconnects
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
		return 0, exchange.WithStatus(http.StatusConflict, streamerr.InvalidParam(follow.CursorHeader, "the %s %.64q belongs to another stream", follow.CursorHeader, text))
	}
	return cursor.Seq, nil
}

// unread returns the error for a stream that cannot be read. A caller that must not know of the
// stream gets the same error as for an unknown id.
func (r *Readers) unread(caller access.Caller, id, token string, err error) error {
	if !errors.Is(err, replay.ErrUnknown) {
		return err
	}
	own := r.Ledger.Get(id)
	if own != nil && ledger.OwnedBy(own, caller.Owners()...) || r.Keyring.Known(id, token) {
		return exchange.NotKept(r.Name, id, own)
	}
	return access.Missing(id)
}

// Lost returns the error for a stream that has become unreadable while a reader had it open.
func Lost(id string, err error) error {
	if !errors.Is(err, replay.ErrUnknown) {
		return err
	}
	return exchange.WithStatus(http.StatusGone, streamerr.New(streamerr.NotFound, "the events of stream %q are no longer kept", id))
}

// A form writes events to a reader.
type form interface {
	// refused undoes the preparations for a reader that is refused.
	refused()
	// begin begins the answer. sent is called with the number of events with text that the kernel
	// has accepted, and the time since the connection was taken. lost ends the reader.
	begin(client *clientconn.Conn, sent func(at time.Duration, events int), lost func(cause *streamerr.Error)) error
	// read writes the events after number after until the closing event is written or ctx is done.
	// Each event waits until the client has taken the previous one.
	read(ctx context.Context, in replay.Reader, after uint64) (follow.End, error)
	// end ends the answer. cause is why the reader has left; failed reports that the reader cannot
	// be written to, or that the stream continues.
	end(cause *streamerr.Error, failed bool)
}

// follow writes events until the reader has received the last event, leaves, or is cut off because
// it does not read.
func (r *Readers) follow(conn context.Context, c *app.RequestContext, id string, in replay.Reader, after uint64, f form) {
	begun := time.Now()
	ctx, control := stream.WithControl(conn, readerGrace)
	defer control.Release()
	remove, err := r.Live.Add(stream.NewID(), control)
	if err != nil {
		f.refused()
		r.refuse(c, r.noReader(err))
		return
	}
	defer remove()
	cut := func(cause *streamerr.Error) { control.Kill(cause) }
	client := clientconn.Take(c)
	defer client.GiveBack()
	client.Bound(clientconn.Bounds{Write: r.WriteTimeout, Client: r.ClientTimeout, Clock: &r.clock}, cut)
	client.EndWith(ctx)
	reading, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	defer stream.AtStop(ctx, leave)()
	head := in.Head()
	left := r.Enter(head)
	d := delivery.Of(head)
	d.Part = after > 0
	r.Deliveries.Open(d)
	defer r.Deliveries.Close(d)
	end := follow.End{After: after}
	if err = f.begin(client, d.Sent, cut); err == nil {
		end, err = f.read(reading, in, after)
	}
	cause := r.whyLeft(ctx, head, end, err)
	if end.Closed {
		left(nil)
	} else {
		left(cause)
	}
	r.Log.Info("reader left", "stream", id, "hop", r.Name, "reason", cause.Reason.String(), "message", cause.Text(),
		"last", follow.Cursor{Epoch: head.Epoch, Seq: end.After}.String(), "events", end.Events, "took", time.Since(begun))
	f.end(cause, err != nil)
}

// whyLeft returns the reason why a reader has stopped reading.
func (r *Readers) whyLeft(ctx context.Context, h replay.Head, end follow.End, err error) *streamerr.Error {
	cause := stream.Cause(ctx)
	switch {
	case end.Closed:
		return streamerr.New(streamerr.Completed, "the reader has the ending")
	case errors.Is(cause, context.Canceled):
		return clientconn.Gone()
	case cause != nil:
		return streamerr.As(cause)
	default:
		return streamerr.As(Lost(h.ID, err))
	}
}

// noReader returns the error for a reader that cannot be added.
func (r *Readers) noReader(err error) *streamerr.Error {
	if errors.Is(err, stream.ErrClosed) {
		return r.drains()
	}
	return &streamerr.Error{Reason: streamerr.Overloaded, Message: "too many readers", RetryAfter: retryAfter}
}

// drains returns the ending of readers when the process drains.
func (r *Readers) drains() *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Draining, Message: r.Name + " is shutting down", RetryAfter: retryAfter}
}
