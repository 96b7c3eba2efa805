package edge

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

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

// abortRequest is SGLang's POST /abort_request {"rid":"..."}. SGLang takes rid for a prefix; here it names one stream.
func (e *Edge) abortRequest(ctx context.Context, c *app.RequestContext) {
	requestID(c)
	body, err := e.readBody(c)
	if err != nil {
		e.refuse(c, statusOf(err), err)
		return
	}
	var in struct {
		RID      string `json:"rid"`
		AbortAll bool   `json:"abort_all"`
	}
	switch err := json.Unmarshal(body, &in); {
	case err != nil:
		e.refuse(c, http.StatusBadRequest, streamerr.New(streamerr.Invalid, "the body must be a JSON object with a string rid: %v", err))
	case in.AbortAll:
		e.refuse(c, http.StatusBadRequest, streamerr.InvalidParam("abort_all", "abort_all is not supported: it would end other users' streams"))
	case in.RID == "":
		e.refuse(c, http.StatusBadRequest, streamerr.InvalidParam("rid", "rid is missing"))
	default:
		e.stopByID(ctx, c, in.RID)
	}
}

// stopByID ends a stream with USER_STOP, wherever it is: a stream of another api-service is stopped where all of them meet,
// in the chat-service, and its ending goes up to the one that owns it.
func (e *Edge) stopByID(ctx context.Context, c *app.RequestContext, id string) {
	if !stream.ValidID(id) {
		e.refuse(c, http.StatusBadRequest, streamerr.InvalidParam("id", "%.64q is no stream's id", id))
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
	answer, err := json.Marshal(struct {
		ID    string `json:"id"`
		State string `json:"state"`
		AgeMS int64  `json:"age_ms"`
	}{id, "stopping", age.Milliseconds()})
	if err != nil {
		panic(err) // strings and a number
	}
	c.Data(http.StatusAccepted, "application/json", answer)
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
