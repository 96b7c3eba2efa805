package edge

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/storage"
	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A parser reads a body that asks for a stream.
type parser func(body []byte, in *strict.Reading) (*call.Call, error)

// openAI returns the parser for OpenAI's chats, completions or streams.
func openAI(parse func(body []byte, in *strict.Reading) (*openai.Chat, error)) parser {
	return func(body []byte, as *strict.Reading) (*call.Call, error) {
		in, err := parse(body, as)
		if err != nil {
			return nil, err
		}
		return in.Call(), nil
	}
}

// answer returns the handler of requests whose response carries the answer, such as POST
// /v1/chat/completions.
func (e *Edge) answer(parse parser) app.HandlerFunc {
	return func(conn context.Context, c *app.RequestContext) { e.answerCall(conn, c, parse) }
}

// answerCall answers a request. conn is done when the client closes its connection.
func (e *Edge) answerCall(conn context.Context, c *app.RequestContext, parse parser) {
	id := exchange.StreamID(conn, c)
	in, policy, _, err := e.readCall(conn, c, parse, e.config.Leave)
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	if in.Loaded != nil {
		e.operator.Load(conn, c, in)
		return
	}
	if in.ID != "" {
		id = exchange.NameStream(conn, c, in.ID)
	}
	in.Request.StreamId = id
	ctx, r, kept, err := e.beginAnswer(conn, c, in, policy, nil)
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	id = in.Request.GetStreamId() // the stream may have got another one
	if in.Store != nil && in.Store.Background {
		e.answerBehind(ctx, conn, c, in, r, kept)
		return
	}
	if in.Stream && r.outlives {
		e.relay(ctx, conn, c, in, r, e.delivers(conn, id, kept))
		return
	}
	client, release := e.take(ctx, conn, c, r, nil)
	finish := func() {
		defer release() // the next request on the connection may use the id again
		r.finish(conn)
	}
	if !in.Stream {
		defer r.finish(conn)
		defer release()
		e.complete(ctx, c, client, in, r, kept)
		return
	}
	handed := false
	defer func() {
		if !handed { // after a panic
			finish()
		}
	}()
	a := e.newAnswer(ctx, c, client, in, r, e.delivers(conn, id, kept))
	handed = true
	e.stream(c, a, finish)
}

// beginAnswer admits the stream of a request, and loads what the request refers to. The limits of
// the caller's key come first: a request over a limit reads no earlier conversation, fetches no
// image and keeps no answer. memory, which may be nil, is the first place to look for the
// conversation.
func (e *Edge) beginAnswer(conn context.Context, c *app.RequestContext, in *call.Call, p leave.Policy, memory storage.Memory) (ctx context.Context, r *run, kept *replay.Head, err error) {
	traced := exchange.Traced(conn, c)
	grant, err := e.meter.Enter(traced, c)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if r == nil {
			grant.End(0)
		}
	}()
	if err = e.continueEarlier(conn, c, in, memory); err == nil {
		err = e.fill(conn, c, in)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if kept, err = e.keepAnswer(conn, c, in, p); err != nil {
		return nil, nil, nil, err
	}
	if kept == nil && in.Store != nil {
		e.freeID(conn, c, in)
	}
	in.Request.Gathered = !in.Stream && kept == nil // a kept answer is not gathered, because readers of the log see each delta
	if ctx, r, err = e.begin(traced, c, grant, in, p, kept); err != nil && kept != nil {
		e.replay.Forget(conn, kept.ID, kept.Epoch)
	}
	if r != nil && kept == nil && in.Store != nil {
		r.ends = func(end *chatv1.GenerateResponse) { e.storeEnded(context.WithoutCancel(ctx), in, end) }
	}
	return ctx, r, kept, err
}

// take takes over the connection of the client that asked for r. The client leaves when it closes
// its connection, does not read, or vanishes. The connection is reset when the client leaves, or
// does not read the ending of the stream of ctx. left, which may be nil, is called when the client
// leaves. The caller calls release when the client has been answered.
func (e *Edge) take(ctx, conn context.Context, c *app.RequestContext, r *run, left func()) (client *clientconn.Conn, release func()) {
	client = clientconn.Take(c)
	r.enter(client.Extent, func() {
		if left != nil {
			left()
		}
		client.Kill()
	})
	client.Bound(e.bounds(), r.leave)
	client.EndWith(ctx)
	undo := connection.AfterLeft(conn, func() { r.leave(clientconn.Left(conn)) })
	return client, func() {
		undo()
		client.GiveBack()
	}
}

// bounds returns the timeouts that apply to all clients.
func (e *Edge) bounds() clientconn.Bounds {
	return clientconn.Bounds{Write: e.config.WriteTimeout, Client: e.config.ClientTimeout, Clock: &e.clock}
}

// readCall reads a request for a stream and returns it, its leave policy and its body. The policy
// comes from the request's header, then from its key, then from otherwise. conn is done when the
// client closes its connection.
func (e *Edge) readCall(conn context.Context, c *app.RequestContext, parse parser, otherwise leave.Policy) (*call.Call, leave.Policy, []byte, error) {
	in, body, err := read(conn, e, c, parse)
	if err != nil {
		return nil, otherwise, nil, err
	}
	policy, err := permit(c, exchange.Caller(conn), in, otherwise)
	return in, policy, body, err
}

// permit completes a caller's request from the headers of c and the caller's key, and returns its
// leave policy. permit refuses requests that the key does not allow.
func permit(c *app.RequestContext, caller access.Caller, in *call.Call, otherwise leave.Policy) (policy leave.Policy, err error) {
	if in.Timeout, err = exchange.Timeout(c, in.Timeout); err != nil {
		return otherwise, err
	}
	in.Conversation = exchange.Session(c)
	if in.Request.GetSession() == "" {
		in.Request.Session = in.Conversation
	}
	if in.Request.Claim, err = caller.Claim(in.Request.GetClaim().GetTier()); err != nil {
		return otherwise, err
	}
	if err := caller.Bound(in.Request, &in.Timeout, in.DefaultTokens); err != nil {
		return otherwise, exchange.Outward(in.Param, streamerr.As(err))
	}
	var asked *leave.Policy
	if header := string(c.GetHeader(leave.Header)); header != "" {
		policy, err := leave.Parse(header)
		if err != nil {
			return otherwise, err
		}
		asked = &policy
	}
	if !caller.Entry.Keeps() {
		dropStorage(in)
	}
	if in.Store != nil && !caller.Entry.Keeps() {
		return otherwise, &streamerr.Error{Reason: streamerr.Forbidden, Param: "store", Message: "the API key does not allow keeping answers, so store must be false"}
	}
	if in.Store != nil && in.Store.Background {
		otherwise = leave.Policy{Kind: leave.Detach}
	}
	return caller.Entry.Policy(asked, otherwise)
}

// fill fetches the images of a request if its model takes images. Notes take the place of those that
// the answer does not need and that cannot be had. An image that the answer needs, for a model that
// takes none, stays empty: the chat-service's refusal names the engine.
func (e *Edge) fill(ctx context.Context, c *app.RequestContext, in *call.Call) error {
	all, messages := in.Images, in.Request.GetMessages()
	in.Images = nil
	if len(all) == 0 {
		return nil
	}
	takes, err := e.chats.TakesImages(ctx, in.Request.GetModel())
	if err != nil {
		return err
	}
	image.MarkSpare(messages, all)
	if takes {
		if err := e.images.Fill(ctx, in.Request.GetClaim().GetTenant(), all); err != nil {
			return err
		}
	}
	for _, field := range image.NoteOmitted(messages, all, takes) {
		if err := e.desk.Leave(c, in, field); err != nil {
			return err
		}
	}
	return image.CheckSize(all[0].Param, proto.Size(in.Request))
}

// read returns the body of a request that makes a stream, and the parsed input.
func read[In any](conn context.Context, e *Edge, c *app.RequestContext, parse func(body []byte, in *strict.Reading) (In, error)) (in In, body []byte, err error) {
	if err = exchange.Caller(conn).Make(); err != nil {
		return in, nil, err
	}
	if body, err = e.desk.Body(c, exchange.Caller(conn).Owner); err != nil {
		return in, nil, err
	}
	in, err = exchange.Parse(e.desk, c, body, parse)
	return in, body, err
}

// complete answers with one body.
func (e *Edge) complete(ctx context.Context, c *app.RequestContext, client *clientconn.Conn, in *call.Call, r *run, kept *replay.Head) {
	var body []byte
	gather := in.Whole()
	o := r.drive(ctx, in, func(_ *stream.Loop, out *chatv1.GenerateResponse) error {
		if whole := gather(out); whole != nil {
			body = whole
			r.record.OutBytes(len(body))
		}
		return nil
	})
	id, _ := r.naming.tell()
	exchange.SetID(&c.Response.Header, exchange.Form(c), id)
	if r.kept() && r.started {
		e.offerToken(&c.Response.Header, *kept)
	}
	if o.Err != nil {
		exchange.Failed(ctx, exchange.Form(c), client, in.Param, o)
		return
	}
	exchange.Completed(ctx, client, body, o)
}
