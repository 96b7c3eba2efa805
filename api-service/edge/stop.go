package edge

import (
	"context"
	"net/http"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/story"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// stopStream is DELETE /v1/streams/{id}.
func (e *Edge) stopStream(ctx context.Context, c *app.RequestContext) {
	requestID(c)
	e.stopByID(ctx, c, c.Param("id"))
}

// abortRequest is SGLang's POST /abort_request.
func (e *Edge) abortRequest(ctx context.Context, c *app.RequestContext) {
	requestID(c)
	body, err := e.readBody(c)
	if err != nil {
		e.refuse(c, statusOf(err), err)
		return
	}
	rid, err := story.ParseAbort(body)
	if err != nil {
		e.refuse(c, statusOf(err), err)
		return
	}
	e.stopByID(ctx, c, rid)
}

// stopByID ends a stream with USER_STOP, wherever it is: a stream of another api-service is stopped where all of them meet,
// in the chat-service, and its ending goes up to the one that owns it.
func (e *Edge) stopByID(ctx context.Context, c *app.RequestContext, id string) {
	if err := checkID(id); err != nil {
		e.refuse(c, statusOf(err), err)
		return
	}
	cause := &streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath(client), Message: "the client asked for the stream to stop"}
	age, ok := e.hop.Live.Stop(id, cause)
	if !ok {
		var err error
		if age, err = e.stopBelow(ctx, id, streamerr.Via(e.hop.Name, cause)); err != nil {
			e.refuse(c, statusOf(err), err)
			return
		}
	}
	c.Data(http.StatusAccepted, "application/json", story.Stopping(id, age))
}

func (e *Edge) stopBelow(ctx context.Context, id string, cause *streamerr.Error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := e.client.Stop(ctx, &chatv1.StopRequest{Stream: &streamv1.StopStreamRequest{
		StreamId: id,
		Stop:     &streamv1.Stop{Reason: cause.Reason.Proto(), Path: cause.Path, Message: cause.Text()},
	}})
	if err != nil {
		return 0, streamerr.FromGRPC(chatHop, err)
	}
	return resp.GetStream().GetAge().AsDuration(), nil
}

// why is GET /v1/streams/{id}: what every hop that knows the stream tells of it.
func (e *Edge) why(ctx context.Context, c *app.RequestContext) {
	requestID(c)
	id := c.Param("id")
	if err := checkID(id); err != nil {
		e.refuse(c, statusOf(err), err)
		return
	}
	var hops []*streamv1.Record
	if own := e.hop.Ledger.Get(id); own != nil {
		hops = append(hops, own)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := e.streams.Why(ctx, &streamv1.WhyRequest{StreamId: id})
	hops = append(hops, resp.GetHops()...)
	if len(hops) == 0 {
		err := streamerr.FromGRPC(chatHop, err)
		e.refuse(c, statusOf(err), err)
		return
	}
	c.Data(http.StatusOK, "application/json", story.New(hops).JSON())
}

func checkID(id string) error {
	if stream.ValidID(id) {
		return nil
	}
	return streamerr.InvalidParam("id", "%.64q is no stream's id", id)
}
