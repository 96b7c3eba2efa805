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
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// retryAfter is the reconnection delay that readers get.
const retryAfter = time.Second

// readerGrace is the time that a dismissed reader has to read data in flight. Then its connection
// is closed.
const readerGrace = 100 * time.Millisecond

// Readers serves the readers of one edge. Its fields must not change while it is in use.
type Readers struct {
	Name       string // the edge's name in paths and logs
	Log        *slog.Logger
	Desk       *exchange.Desk
	Guard      *access.Guard
	Keyring    *follow.Keyring
	Replay     replay.Log
	Ledger     *ledger.Ledger
	Deliveries *delivery.Book
	// Enter counts a reader of a stream that this edge runs. The caller calls leave when the reader
	// has left: with the cause, or with nil if it has read the ending. For other streams leave does
	// nothing.
	Enter func(h replay.Head) (leave func(cause *streamerr.Error))
	Gate  *gate.Gate // decides which pages may open a WebSocket

	TokenTTL      time.Duration // of read tokens
	KeepAlive     time.Duration // time without an event after which a reader gets a comment; 0 means never
	ClientTimeout time.Duration // for a client's acknowledgement; 0 means no bound
	WriteTimeout  time.Duration // for one write to a client

	Live stream.Set // the connected readers

	clock coarse.Clock // of their connections' timers
}

// Caller identifies the caller of a request for which a read token is enough.
func (r *Readers) Caller(c *app.RequestContext) (access.Caller, error) {
	if Tokened(c) && len(c.GetHeader(keys.Header)) == 0 {
		return access.Caller{}, nil
	}
	return exchange.Caller(c, r.Guard)
}

// Tokened reports whether a read token is enough for a request, and the request has one: browsers'
// EventSource cannot send headers. The handler checks the token.
func Tokened(c *app.RequestContext) bool {
	rest, ok := strings.CutPrefix(string(c.Path()), "/v1/streams/")
	_, what, _ := strings.Cut(rest, "/")
	return ok && (what == "events" || what == "seen") && c.Query(follow.TokenParam) != ""
}

// Drain ends the remaining readers when ctx is done, such as readers of other instances' streams,
// which reconnect to another instance. New readers are refused from now on.
func (r *Readers) Drain(ctx context.Context) { r.Live.Drain(ctx, r.drains()) }

// Made returns the response to the client that made a kept stream.
func (r *Readers) Made(h replay.Head) follow.Receipt {
	expires := time.Now().Add(r.TokenTTL)
	return follow.Receipt{ID: h.ID, Events: "/v1/streams/" + h.ID + "/events", ExpiresAt: expires, Token: r.Keyring.Token(h.ID, h.Epoch, expires), Resumable: h.Shared}
}

// RenewToken is POST /v1/streams/{id}/token: a new read token, for a caller that reads the stream
// without one.
func (r *Readers) RenewToken(conn context.Context, c *app.RequestContext) {
	id := c.Param("id")
	exchange.ID(c)
	caller, err := exchange.Caller(c, r.Guard)
	if err != nil {
		r.Desk.Refuse(c, err)
		return
	}
	in, err := r.open(conn, caller, id, "")
	if err != nil {
		r.Desk.Refuse(c, err)
		return
	}
	defer in.Close()
	if err := r.Guard.Read(caller, in.Head(), ""); err != nil {
		r.Desk.Refuse(c, err)
		return
	}
	c.Data(http.StatusCreated, "application/json", r.Made(in.Head()).JSON())
}

// Events is GET /v1/streams/{id}/events, as server-sent events or, for a request that asks for one,
// over a WebSocket. It starts no engine work.
func (r *Readers) Events(conn context.Context, c *app.RequestContext) {
	id := c.Param("id")
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
	socket := websocket.Asked(c)
	switch {
	case errors.Is(err, replay.ErrAhead):
		r.refuse(c, exchange.WithStatus(http.StatusConflict, streamerr.InvalidParam(follow.CursorHeader, "the stream has not said as much as the %s %d says", follow.CursorHeader, after)))
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
	caller, err := r.Caller(c)
	if err != nil {
		return nil, 0, err
	}
	token := c.Query(follow.TokenParam)
	in, err := r.open(conn, caller, id, token)
	if err != nil {
		return nil, 0, err
	}
	err = r.Guard.Read(caller, in.Head(), token)
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
		return 0, exchange.WithStatus(http.StatusConflict, streamerr.InvalidParam(follow.CursorHeader, "the %s %.64q is another stream's", follow.CursorHeader, text))
	}
	return cursor.Seq, nil
}

// unread returns the error for a stream that cannot be read. A caller that must not know of the
// stream gets the answer of Missing.
func (r *Readers) unread(caller access.Caller, id, token string, err error) error {
	if !errors.Is(err, replay.ErrUnknown) {
		return err
	}
	own := r.Ledger.Get(id)
	if own != nil && ledger.OwnedBy(own, r.Guard.Owners(caller)...) || r.Keyring.Known(id, token) {
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

// A form is how a reader gets events.
type form interface {
	// refused takes back what was prepared, for a reader that is refused.
	refused()
	// begin begins the answer. sent is called with the number of events with text that the kernel
	// has accepted, and the time since the connection was taken. lost ends the reader.
	begin(client *clientconn.Conn, sent func(at time.Duration, events int), lost func(cause *streamerr.Error)) error
	// read writes the events after the one with the number after, each once the client has taken the one
	// before it, until the closing event is written or ctx is done.
	read(ctx context.Context, in replay.Reader, after uint64) (follow.End, error)
	// end ends the answer. cause is why the reader has left; failed says that it cannot be written to,
	// or that the stream continues.
	end(cause *streamerr.Error, failed bool)
}

// follow writes events until the reader has received the last one, leaves, or is cut off because it
// does not read.
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
	defer stream.AfterStop(ctx, leave)()
	head := in.Head()
	left := r.Enter(head)
	d := r.Deliveries.Open(&delivery.Delivery{Head: head, Kept: true, Part: after > 0})
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

// noReader returns the error for a reader without a place.
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
