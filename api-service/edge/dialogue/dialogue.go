// Package dialogue serves OpenAI's Responses API over a WebSocket: GET /v1/responses.
//
// Each message of the client asks for a response, and each response is a stream of its own, with an id, a
// record and an ending. A message of the server is one event of a response, as POST /v1/responses streams
// it, or an error. Responses run one after another. The dialogue remembers the conversation of its last
// response, so that the next message can continue a response that is not stored.
//
// A message that cannot be answered gets an error, and the dialogue continues. A dialogue ends when
// its client leaves, when the client breaks the WebSocket protocol, at the end of Lifetime, and
// when the process drains.
package dialogue

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/websocket"
	"github.com/whence-dev/whence/api-service/gate"
	"github.com/whence-dev/whence/pkg/drain"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// maxWaiting bounds the messages that wait for earlier responses. Further messages are refused.
	maxWaiting = 16
	// waitingSize bounds the bytes of the messages that wait, in messages of the maximum size.
	waitingSize = 2
	// grace is how long a stopped dialogue may last. Its response has a grace of its own.
	grace = 5 * time.Second
	// retryAfter is when a refused client may try again.
	retryAfter = time.Second
)

// A Service serves the dialogues of an edge. Its fields must not change while it is in use.
type Service struct {
	Name string // of this hop
	Desk *exchange.Desk
	Gate *gate.Gate
	Log  *slog.Logger
	// Run runs the response that a turn asks for, and returns when the response has ended. An error
	// is a refusal: the client has not been told anything yet.
	Run func(conn context.Context, c *app.RequestContext, t *Turn) error

	Bounds     clientconn.Bounds
	KeepAlive  time.Duration // time between pings; 0 means none
	MaxMessage int64         // bytes of one message of a client
	// Lifetime bounds a dialogue. A response that is running at its end may finish.
	Lifetime time.Duration

	Live stream.Set // the dialogues
}

// Drain ends each dialogue once its response has ended, or after the grace.
func (s *Service) Drain(ctx context.Context, grace time.Duration) {
	within, cancel := drain.Within(ctx, grace)
	defer cancel()
	s.Live.Drain(within, s.drains())
}

// drains returns the ending of dialogues when the process drains.
func (s *Service) drains() *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Draining, Message: s.Name + " is shutting down", RetryAfter: retryAfter}
}

// Handle handles GET /v1/responses.
func (s *Service) Handle(conn context.Context, c *app.RequestContext) {
	id := exchange.StreamID(conn, c)
	shake, err := websocket.Check(c, s.Gate)
	if err != nil {
		s.Desk.Refuse(c, err)
		return
	}
	ctx, ctl := stream.Detached(conn, grace)
	defer ctl.Release()
	remove, err := s.Live.Add(stream.NewID(), ctl)
	if err != nil {
		shake.Cancel()
		s.Desk.Refuse(c, s.noPlace(err))
		return
	}
	defer remove()
	ctl.OnIdle(func(idle bool) {
		if idle && s.Live.Closed() { // the response has ended while the process drains
			ctl.Stop(s.drains())
		}
	})
	d := &dialogue{
		service: s, form: exchange.Form(c), ctl: ctl, id: id,
		waiting: stream.NewInbox[websocket.Message](maxWaiting, waitingSize*int(s.MaxMessage)),
	}
	d.client = clientconn.Take(c)
	defer d.client.GiveBack()
	d.client.Bound(s.Bounds, d.lose)
	d.reserve = func(size int64) (func(int64), error) { return s.Desk.Bodies.Share(exchange.Caller(conn).Owner, size) }
	d.conn = shake.Accept(d.client, s.MaxMessage)
	d.conn.Reserve = d.reserve
	defer d.free()
	session := d.conn.Serve(websocket.Rules{
		Name: s.Name, Log: s.Log, KeepAlive: s.KeepAlive, Patience: s.Bounds.Client, Take: d.take, Lost: d.lose,
	})
	defer func() { session.Wait(s.Live.Closed()) }()
	expiry := time.AfterFunc(s.Lifetime, func() { ctl.Stop(s.expired()) })
	defer expiry.Stop()
	for {
		m, err := d.waiting.Next(ctx)
		if err != nil {
			d.end(session, err)
			return
		}
		d.answer(conn, c, m)
	}
}

// noPlace returns the refusal of a dialogue that cannot be added.
func (s *Service) noPlace(err error) error {
	if errors.Is(err, stream.ErrClosed) {
		return s.drains()
	}
	return &streamerr.Error{Reason: streamerr.Overloaded, Message: "too many WebSockets are open (--max-streams)", RetryAfter: retryAfter}
}

// expired returns the ending of a dialogue that has reached its lifetime.
func (s *Service) expired() *streamerr.Error {
	return streamerr.New(streamerr.Deadline, "the WebSocket has been open for %v, which is the limit; open another one", s.Lifetime).WithCode(streamerr.CodeSocketLimit)
}

// A dialogue is a WebSocket of the Responses API.
type dialogue struct {
	service *Service
	form    *call.Form
	ctl     *stream.Control
	client  *clientconn.Conn
	conn    *websocket.Conn
	waiting *stream.Inbox[websocket.Message]
	reserve func(size int64) (shrink func(to int64), err error) // takes memory for long messages and conversations

	mu    sync.Mutex // guards the following fields
	leave func(cause *streamerr.Error)
	lost  *streamerr.Error

	// Owned by the goroutine of the handler.
	last memory
	id   string // the id of the first stream, from the handshake; "" after the first message
}

// A memory is the conversation up to a response.
type memory struct {
	id     string // of the response; "" if there is none
	items  []json.RawMessage
	shrink func(to int64) // returns the memory that a long conversation takes; nil for a short one
}

// freeMemory is the size from which a conversation takes memory of its owner, in bytes.
const freeMemory = 3 << 20

// forget forgets the conversation.
func (d *dialogue) forget() {
	if d.last.shrink != nil {
		d.last.shrink(0)
	}
	d.last = memory{}
}

// lose ends the dialogue and its response, because the client has gone or has broken a rule.
func (d *dialogue) lose(cause *streamerr.Error) {
	d.mu.Lock()
	leave := d.leave
	if d.lost == nil {
		d.lost = cause
	}
	d.mu.Unlock()
	d.ctl.Stop(cause)
	if leave != nil {
		leave(cause)
	}
}

// onLoss sets the function that ends the response when the client is lost. If the client is lost
// already, onLoss calls leave at once.
func (d *dialogue) onLoss(leave func(cause *streamerr.Error)) {
	d.mu.Lock()
	d.leave = leave
	lost := d.lost
	d.mu.Unlock()
	if lost != nil && leave != nil {
		leave(lost)
	}
}

// reads reports whether the client can still read messages.
func (d *dialogue) reads() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost == nil || d.lost.Reason != streamerr.ClientGone && d.lost.Reason != streamerr.SlowReader
}

// free returns the memory of the dialogue and of the messages that still wait.
func (d *dialogue) free() {
	d.forget()
	d.waiting.Close()
	for {
		m, err := d.waiting.Next(context.Background())
		if err != nil {
			return
		}
		m.Free()
	}
}

// take queues a message of the client, or refuses it.
func (d *dialogue) take(m websocket.Message) *streamerr.Error {
	why := m.Refused
	if why == nil && d.waiting.Put(m, len(m.Data)) != nil {
		m.Free()
		why = &streamerr.Error{
			Reason: streamerr.Overloaded, Message: "too many messages are waiting; wait for a response before you send another message", RetryAfter: retryAfter,
		}
	}
	if why != nil {
		d.refuse(stream.NewID(), why)
	}
	return nil
}

// answer runs the response that a message asks for.
func (d *dialogue) answer(conn context.Context, c *app.RequestContext, m websocket.Message) {
	defer m.Free()
	t, err := d.turn(m)
	if err == nil {
		defer d.onLoss(nil)
		err = d.service.Run(conn, c, t)
	}
	if err != nil {
		d.refuse(t.ID, err)
		t.forget()
	}
}

// refuse tells the client that a message is not answered.
func (d *dialogue) refuse(id string, err error) {
	status, body := d.service.Desk.Refusal(d.form, id, err)
	_ = d.conn.Say(problem(status, body)) // client reports why a write failed
}

// end closes the WebSocket.
func (d *dialogue) end(session *websocket.Session, err error) {
	cause := streamerr.As(err)
	var last []byte
	if cause.Reason != streamerr.Draining { // the client would take an unasked error for the error of its next message
		status := cause.Reason.HTTPStatus()
		if cause.Code == streamerr.CodeSocketLimit {
			status = http.StatusBadRequest // the same as OpenAI
		}
		status, body := d.form.Refusal(status, streamerr.Via(d.service.Name, cause), "")
		last = problem(status, body)
	}
	session.Close(last, cause.Reason, cause)
}
