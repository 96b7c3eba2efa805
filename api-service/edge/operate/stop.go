package operate

import (
	"context"
	"net/http"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/story"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// stopStream is DELETE /v1/streams/{id}.
func (o *Operator) stopStream(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	o.stopByID(ctx, c, "id", c.Param("id"))
}

// abortRequest is SGLang's POST /abort_request.
func (o *Operator) abortRequest(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	body, err := o.Body(c)
	if err != nil {
		o.Refuse(c, err)
		return
	}
	rid, err := story.ParseAbort(body)
	if err != nil {
		o.Refuse(c, err)
		return
	}
	o.stopByID(ctx, c, "rid", rid)
}

// stopByID ends a stream with USER_STOP, wherever it is: a stream of another api-service is stopped where all of them meet,
// in a chat-service, and its ending goes up to the one that owns it. param is what the request calls the id.
func (o *Operator) stopByID(ctx context.Context, c *app.RequestContext, param, id string) {
	if err := o.check(ctx, c, id); err != nil {
		o.Refuse(c, err)
		return
	}
	cause := &streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath(exchange.Client), Message: "the client asked for the stream to stop"}
	age, ok := o.Hop.Live.Stop(id, cause)
	if !ok {
		err := o.mayAskBelow(ctx, c, id)
		if err != nil {
			o.Refuse(c, named(err, param))
			return
		}
		if age, err = o.stopBelow(ctx, id, streamerr.Via(o.Hop.Name, cause)); err != nil {
			o.Refuse(c, named(err, param))
			return
		}
	}
	c.Data(http.StatusAccepted, "application/json", story.Stopping(id, age))
}

func (o *Operator) stopBelow(ctx context.Context, id string, cause *streamerr.Error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := o.Chats.Stop(ctx, &chatv1.StopRequest{Stream: &streamv1.StopStreamRequest{
		StreamId: id,
		Stop:     &streamv1.Stop{Reason: cause.Reason.Proto(), Path: cause.Path, Message: cause.Text()},
	}})
	if err != nil {
		return 0, err
	}
	return resp.GetStream().GetAge().AsDuration(), nil
}

// why is GET /v1/streams/{id}: what every hop that knows the stream tells of it.
func (o *Operator) why(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	id := c.Param("id")
	if err := o.check(ctx, c, id); err != nil {
		o.Refuse(c, err)
		return
	}
	var hops []*streamv1.Record
	if own := o.Hop.Ledger.Get(id); own != nil {
		hops = append(hops, own)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	below, err := o.Chats.Why(ctx, id)
	hops = append(hops, below...)
	if len(hops) == 0 {
		o.Refuse(c, named(err, "id"))
		return
	}
	exchange.JSON(c, story.New(hops).JSON())
}

// named is an error of a hop below as the client reads it, who calls the stream's id by another name.
func named(err error, param string) error {
	out := *streamerr.As(err)
	if out.Param == "stream_id" {
		out.Param = param
	}
	return &out
}

// check refuses what names no stream, or one of somebody else's.
func (o *Operator) check(ctx context.Context, c *app.RequestContext, id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	return o.mayHave(ctx, c, id)
}

// CheckID refuses what can be no stream's id.
func CheckID(id string) error {
	if stream.ValidID(id) {
		return nil
	}
	return streamerr.InvalidParam("id", "%.64q is no stream's id", id)
}
