package edge

import (
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/story"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// listStreams is GET /v1/streams: those that run here, or with state=ended the last that ended here.
func (e *Edge) listStreams(_ context.Context, c *app.RequestContext) {
	requestID(c)
	query, err := story.ParseQuery(string(c.URI().QueryString()))
	if err != nil {
		e.refuse(c, statusOf(err), err)
		return
	}
	list := e.hop.Ledger.Live()
	if query.Ended {
		list = e.hop.Ledger.Ended(query.Limit, query.Wants)
	}
	c.Data(http.StatusOK, "application/json", story.List(list))
}

// workers is GET /v1/workers: how they are, as the chat-service knows it.
func (e *Edge) workers(ctx context.Context, c *app.RequestContext) {
	requestID(c)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := e.client.Workers(ctx, &chatv1.WorkersRequest{})
	if err != nil {
		err := streamerr.FromGRPC(chatHop, err)
		e.refuse(c, statusOf(err), err)
		return
	}
	c.Data(http.StatusOK, "application/json", story.Workers(resp.GetWorkers()))
}
