package edge

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/extent"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// openAIEmbeddings parses a body of POST /v1/embeddings.
func openAIEmbeddings(body []byte, as *strict.Reading) (*call.Embeddings, error) {
	in, err := openai.ParseEmbeddings(body, as)
	if err != nil {
		return nil, err
	}
	return in.Call(), nil
}

// embeddings returns the handler of requests for vectors.
func (e *Edge) embeddings(parse func(body []byte, in *strict.Reading) (*call.Embeddings, error)) app.HandlerFunc {
	return func(conn context.Context, c *app.RequestContext) {
		id := exchange.StreamID(conn, c)
		in, _, err := read(conn, e, c, parse)
		if err == nil {
			err = permitEmbeddings(c, exchange.Caller(conn), in)
		}
		if err != nil {
			e.desk.Refuse(c, err)
			return
		}
		in.Request.StreamId = id
		e.embed(conn, c, in)
	}
}

// permitEmbeddings completes a caller's request from the headers of c and the caller's key. It refuses
// requests that the key does not allow.
func permitEmbeddings(c *app.RequestContext, caller access.Caller, in *call.Embeddings) (err error) {
	if in.Timeout, err = exchange.Timeout(c, in.Timeout); err != nil {
		return err
	}
	if in.Request.Claim, err = caller.Claim(in.Request.GetClaim().GetTier()); err != nil {
		return err
	}
	in.Timeout = caller.Entry.Timeout(in.Timeout)
	return caller.Entry.Model(in.Request.GetModel())
}

// embed answers a request for vectors: a stream of one item. The stream ends when its client leaves,
// whatever the policy for other streams, because its result cannot be read later.
func (e *Edge) embed(conn context.Context, c *app.RequestContext, in *call.Embeddings) {
	ctx, end, err := e.count(exchange.Traced(conn, c), c, &in.Request.StreamId, in.Request.GetClaim())
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	defer end()
	control := stream.ControlOf(ctx)
	leave := func(cause *streamerr.Error) {
		ledger.Of(ctx).Left(extent.Nothing)
		control.Stop(cause)
	}
	client := clientconn.Take(c)
	defer client.GiveBack()
	client.Bound(e.bounds(), leave)
	client.EndWith(ctx)
	defer connection.AfterLeft(conn, func() { leave(clientconn.Left(conn)) })()
	var body []byte
	o := rpc.Drive(rpc.WithDeadline(ctx, in.Timeout), e.hop, methods.ChatEmbeddings, e.chats.Embed, in.Request, func(out *chatv1.EmbeddingsResponse) error {
		body = in.Answer(out)
		ledger.Of(ctx).OutBytes(len(body))
		return nil
	})
	if o.Err != nil {
		exchange.Failed(ctx, exchange.Form(c), client, in.Param, o)
		return
	}
	exchange.Completed(ctx, client, body, o)
}
