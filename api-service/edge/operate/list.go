package operate

import (
	"context"
	"slices"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/story"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
)

// list is GET /v1/streams: a page of the caller's streams that run here, or with state=ended the last ones that ended here. An
// operator's list has the streams of all owners.
func (o *Operator) list(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	owners, err := exchange.Caller(ctx).Listed()
	if err != nil {
		o.Refuse(c, err)
		return
	}
	query, err := story.ParseQuery(string(c.URI().QueryString()))
	if err != nil {
		o.Refuse(c, err)
		return
	}
	if query.Ended {
		wants := func(r *streamv1.Record) bool { return ledger.OwnedBy(r, owners...) && query.Wants(r) }
		exchange.JSON(c, story.List(ledger.At(o.Hop).Ended(query.Limit, wants), ""))
		return
	}
	live, next := ledger.At(o.Hop).LiveAfter(query.After, story.LivePage, owners...)
	live = slices.DeleteFunc(live, func(r *streamv1.Record) bool { return !query.Wants(r) }) // so a page may be short
	exchange.JSON(c, story.List(live, next.String()))
}

// workers is GET /v1/workers: the state of the workers, as the chat-services know it.
func (o *Operator) workers(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	if err := exchange.Caller(ctx).Fleet(); err != nil {
		o.Refuse(c, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	workers, err := o.Chats.Workers(ctx)
	if err != nil {
		o.Refuse(c, err)
		return
	}
	exchange.JSON(c, story.Workers(workers))
}
