package operate

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/story"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// list is GET /v1/streams: those that run here, or with state=ended the last that ended here.
func (o *Operator) list(_ context.Context, c *app.RequestContext) {
	exchange.ID(c)
	query, err := story.ParseQuery(string(c.URI().QueryString()))
	if err != nil {
		o.Refuse(c, err)
		return
	}
	list := o.Hop.Ledger.Live()
	if query.Ended {
		list = o.Hop.Ledger.Ended(query.Limit, query.Wants)
	}
	exchange.JSON(c, story.List(list))
}

// workers is GET /v1/workers: how they are, as the chat-service knows it.
func (o *Operator) workers(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := o.Chat.Workers(ctx, &chatv1.WorkersRequest{})
	if err != nil {
		o.Refuse(c, streamerr.FromGRPC(exchange.ChatService, err))
		return
	}
	exchange.JSON(c, story.Workers(resp.GetWorkers()))
}
