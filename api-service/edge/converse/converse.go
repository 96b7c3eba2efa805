// Package converse serves conversations over WebSockets: GET /v1/converse is
// whence.chat.v1.Chat/Converse for clients without gRPC.
//
// A text message is a ConverseRequest or ConverseResponse as protobuf's JSON, a binary message the
// same in protobuf's binary form. The service answers in the form of the client's first message. The
// last message is always text: {"ending":{…}} or {"error":{…}}, with the data of the SSE events of
// these names. A close frame follows, with the code of the ending.
//
// The stream begins with the handshake, so that a handshake can be refused with a status. The
// stream ends with its WebSocket: a client that closes the WebSocket has gone, and the engine
// stops.
package converse

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/edge/chats"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/websocket"
	"github.com/whence-dev/whence/api-service/extent"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/gate"
	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/api-service/quota"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// maxTurns and maxBytes bound the client's messages that wait for earlier answers. They equal
	// the bounds of chat-service. A client that sends more ends its stream with INVALID.
	maxTurns = 64
	maxBytes = 4 << 20
)

// A Service serves the conversations of an edge. Its fields must not change while it is in use.
type Service struct {
	Desk   *exchange.Desk
	Hop    *rpc.Hop
	Engine chats.ConverseEngine
	Gate   *gate.Gate
	Images *image.Fetcher // has the limits of the images of a conversation
	Log    *slog.Logger
	// Admit admits a stream under its id, with the claim of its caller. The caller calls end, which
	// ends the grant.
	Admit func(conn context.Context, c *app.RequestContext, id *string, claim *llmv1.Claim) (ctx context.Context, grant *quota.Grant, end func(), err error)
	// Identify returns why a caller with this key gets no more answers, or nil.
	Identify func(conn context.Context, key string) error

	Bounds      clientconn.Bounds
	KeepAlive   time.Duration // time between pings; 0 means none
	ReadTimeout time.Duration // for the first message
	MaxMessage  int64         // bytes of one message of a client
	Lifetime    time.Duration // of a WebSocket; an answer that is running at its end may finish
	Recheck     time.Duration // time between two checks of the key of a conversation
}

// Handle handles GET /v1/converse.
func (s *Service) Handle(conn context.Context, c *app.RequestContext) {
	t := &talk{
		service: s, id: exchange.StreamID(conn, c), images: s.Images.Checker(),
		later: stream.NewInbox[*chatv1.ConverseRequest](maxTurns, maxBytes),
		turns: turns{conversation: conn, key: string(c.GetHeader(keys.Header))},
	}
	shake, err := t.check(conn, c)
	if err != nil {
		s.Desk.Refuse(c, err)
		return
	}
	ctx, grant, end, err := s.Admit(exchange.Traced(conn, c), c, &t.id, t.claim)
	if err != nil {
		shake.Cancel()
		s.Desk.Refuse(c, err)
		return
	}
	ended := sync.OnceFunc(end)
	defer ended()
	t.ctl, t.record, t.turns.grant = stream.ControlOf(ctx), ledger.Of(ctx), grant
	t.record.Leaves(leave.Policy{}.String())
	client := clientconn.Take(c)
	defer client.GiveBack()
	client.Bound(s.Bounds, t.leave)
	client.EndWith(ctx)
	t.client = client
	exchange.RecordStatus(t.record, http.StatusSwitchingProtocols)
	session := shake.Accept(client, s.MaxMessage).Serve(websocket.Rules{
		Name: s.Hop.Name, Log: s.Log, KeepAlive: s.KeepAlive, Patience: s.Bounds.Client, Take: t.take, Lost: t.leave,
	})
	defer func() { session.Wait(s.Hop.Live.Closed()) }()
	var watching sync.WaitGroup
	done := make(chan struct{})
	watching.Go(func() { t.watch(done) })
	o := rpc.Drive(rpc.WithDeadline(ctx, t.timeout), s.Hop, chats.Converse, stream.Push(t.answer), nil, t.send)
	close(done)
	watching.Wait()
	t.tell(ctx, session, o)
	ended() // the stream ends before the WebSocket does
}

// A talk is a conversation on its WebSocket.
type talk struct {
	service *Service
	id      string
	caller  access.Caller
	claim   *llmv1.Claim // of the conversation; the first message may add a tier
	timeout time.Duration
	later   *stream.Inbox[*chatv1.ConverseRequest] // the client's messages
	turns   turns

	// Set before the Session.
	ctl    *stream.Control
	record *ledger.Record
	client *clientconn.Conn

	kind atomic.Uint32 // websocket.Opcode of the client's first message; 0 before it

	// Owned by the goroutine of take.
	complete bool           // no more turns follow
	images   *image.Checker // of the images of all messages

	// Owned by the goroutine of the handler.
	out    websocket.Encoder
	extent extent.Tracker
	end    *llmv1.End
}

// check checks the request for a conversation.
func (t *talk) check(conn context.Context, c *app.RequestContext) (*websocket.Handshake, error) {
	t.caller = exchange.Caller(conn)
	err := t.caller.Make()
	if err != nil {
		return nil, err
	}
	if t.claim, err = t.caller.Claim(llmv1.Tier_TIER_UNSPECIFIED); err != nil {
		return nil, err
	}
	if t.timeout, err = exchange.Timeout(c, 0); err != nil {
		return nil, err
	}
	t.timeout = t.caller.Entry.Timeout(t.timeout) // the timeout begins with the WebSocket
	if text := string(c.GetHeader(leave.Header)); text != "" {
		policy, err := leave.Parse(text)
		if err != nil {
			return nil, err
		}
		if policy.Kind != leave.Cancel {
			return nil, streamerr.InvalidParam(leave.Header, "%s is %s; a conversation ends with its WebSocket, so it must be cancel", leave.Header, policy)
		}
	}
	return websocket.Check(c, t.service.Gate)
}

// leave ends the stream because its client has gone, or does not read.
func (t *talk) leave(cause *streamerr.Error) {
	if gone := cause.Reason == streamerr.ClientGone || cause.Reason == streamerr.SlowReader; gone && t.ctl.Cause() == nil {
		t.record.Left(t.client.Extent())
	}
	t.ctl.Stop(cause)
}

// take takes a message of the client.
func (t *talk) take(m websocket.Message) *streamerr.Error {
	if t.ctl.State() != stream.Live {
		return nil // the message arrived too late
	}
	in, err := t.decode(m)
	switch {
	case err != nil:
		return err
	case in.GetStop() != nil:
		return stopOf(in)
	case t.complete:
		return streamerr.New(streamerr.Invalid, "a message arrived after the one that ends the turns")
	case in.GetMessage() == nil:
		t.complete = true
		t.later.Close()
	default:
		if err := t.checkImages(in); err != nil {
			return err
		}
		if full := t.later.Put(in, proto.Size(in)); full != nil {
			return streamerr.New(streamerr.Invalid, "%v: wait for answers", full)
		}
	}
	return nil
}

// stopOf returns the ending of a stream whose client has sent a Stop.
func stopOf(in *chatv1.ConverseRequest) *streamerr.Error {
	cause := &streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath(exchange.Client), Message: "the client asked for the stream to stop"}
	if text := in.GetStop().GetMessage(); text != "" {
		cause.Message = text
	}
	return cause
}

// answer is the engine of the conversation. Its request is the client's first message.
func (t *talk) answer(ctx context.Context, _ *chatv1.ChatRequest) iter.Seq2[*chatv1.ConverseResponse, error] {
	return func(yield func(*chatv1.ConverseResponse, error) bool) {
		first, err := t.first(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		if err := t.turns.begin(); err != nil {
			yield(nil, err)
			return
		}
		t.later.Check = t.admit
		t.service.Engine(ctx, &chats.Conversation{First: first, Later: t.later})(yield)
	}
}

// first waits for the request.
func (t *talk) first(ctx context.Context) (*chatv1.ChatRequest, error) {
	late := time.AfterFunc(t.service.ReadTimeout, func() {
		t.ctl.Stop(streamerr.New(streamerr.Deadline, "the request did not arrive in time (--read-timeout of %s)", t.service.Hop.Name))
	})
	in, err := t.later.Next(ctx)
	late.Stop()
	req := in.GetChat()
	switch {
	case err == io.EOF, err == nil && req == nil: //nolint:errorlint // Inbox.Next returns it as it is
		return nil, streamerr.InvalidParam("chat", "the first message must be the request")
	case err != nil:
		return nil, err
	case req.GetStreamId() != "" && req.GetStreamId() != t.id && t.caller.StreamID(req.GetStreamId()) != t.id:
		return nil, streamerr.InvalidParam("chat.stream_id", "the id of the stream is %q, as the header %s of the handshake says", t.id, exchange.IDHeader)
	case req.GetAnswered() != nil: // the worker would read these tokens, and no limit would count them
		return nil, notResumed("chat.answered")
	case len(req.GetAnsweredChoices()) > 0:
		return nil, notResumed("chat.answered_choices")
	}
	req.StreamId = t.id
	if req.Claim, err = t.caller.Claim(req.GetClaim().GetTier()); err != nil {
		return nil, err
	}
	return req, t.caller.Bound(req, &t.timeout, false)
}

func notResumed(param string) *streamerr.Error {
	return streamerr.InvalidParam(param, "%s is for services: a client cannot continue an answer over a WebSocket", param).WithCode(streamerr.CodeUnsupportedValue)
}

// send writes a message. It waits for a slow client, which slows the stream down.
func (t *talk) send(out *chatv1.ConverseResponse) error {
	if out.GetEnd() != nil {
		t.end = out.GetEnd()
	}
	frame, size, err := t.encode(out)
	if err != nil {
		return err
	}
	t.record.OutBytes(size)
	if out.GetStarted() != nil {
		t.client.NextAnswer()
	}
	waits, err := t.client.WriteMarked(frame, 0, clientconn.Mark{Extent: t.extent.TakeTurn(out), At: len(frame), Last: out.GetEnd() != nil})
	if err == nil && waits {
		err = t.client.Flush()
	}
	if err == nil && out.GetTurnEnd() != nil {
		t.charge()
	}
	return err
}

// tell ends the WebSocket with the outcome of the stream.
func (t *talk) tell(ctx context.Context, session *websocket.Session, o rpc.Outcome) {
	last := ending(t.end)
	if o.Err != nil {
		last = o.Err.JSON()
	}
	code, told := session.Close(last, o.Reason(), t.ctl.Cause())
	if told {
		t.record.OutBytes(len(last))
		exchange.RecordEnding(ctx, strconv.Itoa(code), o)
	}
}

// ending returns the last message of a stream that completed.
func ending(end *llmv1.End) []byte {
	return append(append([]byte(`{"ending":`), follow.Completed(end)...), '}')
}
