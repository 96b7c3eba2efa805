package edge

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/extent"
	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// embeddings handles POST /v1/embeddings: a stream of one item. The stream ends when its client
// leaves, whatever the policy for other streams, because its result cannot be read later.
func (e *Edge) embeddings(conn context.Context, c *app.RequestContext) {
	id := exchange.StreamID(conn, c)
	in, err := e.readEmbeddings(conn, c)
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	in.Request.StreamId = id
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
	defer context.AfterFunc(conn, func() { leave(clientconn.Left(conn)) })()
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

func (e *Edge) readEmbeddings(conn context.Context, c *app.RequestContext) (*openai.Embeddings, error) {
	in, _, err := read(conn, e, c, openai.ParseEmbeddings)
	if err != nil {
		return nil, err
	}
	if in.Timeout, err = exchange.Timeout(c, in.Timeout); err != nil {
		return nil, err
	}
	caller := exchange.Caller(conn)
	if in.Request.Claim, err = caller.Claim(in.Request.GetClaim().GetTier()); err != nil {
		return nil, err
	}
	in.Timeout = caller.Entry.Timeout(in.Timeout)
	return in, caller.Entry.Model(in.Request.GetModel())
}
