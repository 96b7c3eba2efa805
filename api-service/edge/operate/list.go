package operate

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/story"
)

// list is GET /v1/streams: those that run here, or with state=ended the last that ended here.
func (o *Operator) list(_ context.Context, c *app.RequestContext) {
	exchange.ID(c)
	if err := o.mayList(c); err != nil {
		o.Refuse(c, err)
		return
	}
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

// workers is GET /v1/workers: how they are, as the chat-services know it.
func (o *Operator) workers(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	if err := o.mayList(c); err != nil {
		o.Refuse(c, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	workers, err := o.Chats.Workers(ctx)
	if err != nil {
		o.Refuse(c, err)
		return
	}
	exchange.JSON(c, story.Workers(workers))
}
