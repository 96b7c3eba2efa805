package edge

import (
	"context"
	"net/http"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// chatCompletions is POST /v1/chat/completions. conn is done when the client closes its connection.
func (e *Edge) chatCompletions(conn context.Context, c *app.RequestContext) {
	id := requestID(c)
	body, err := e.readBody(c)
	if err != nil {
		e.refuse(c, statusOf(err), err)
		return
	}
	in, err := openai.ParseChat(body)
	if err != nil {
		e.refuse(c, statusOf(err), err)
		return
	}
	if in.Timeout, err = timeout(c, in.Timeout); err != nil {
		e.refuse(c, statusOf(err), err)
		return
	}
	in.Request.StreamId = id
	ctx, end, err := e.hop.Begin(conn, &in.Request.StreamId, e.peer(c), gone)
	if err != nil {
		if streamerr.As(err).Param != "" {
			err = streamerr.InvalidParam(requestIDHeader, "a live stream has the %s %q; leave it out, or make it unique", requestIDHeader, id)
		}
		e.refuse(c, statusOf(err), err)
		return
	}
	defer end()
	defer e.feel(c, stream.ControlOf(ctx))()
	ctx = rpc.WithDeadline(ctx, in.Timeout)
	if in.Stream {
		e.stream(ctx, c, in)
		return
	}
	e.complete(ctx, c, in)
}

// complete answers with one body. Where the client has left, nobody sees the status.
func (e *Edge) complete(ctx context.Context, c *app.RequestContext, in *openai.Chat) {
	var started *streamv1.Started
	var text strings.Builder // bounded by the model's context
	var body []byte
	o := rpc.Drive(ctx, e.hop, rpc.Chat, e.chat, in.Request, func(out *chatv1.GenerateResponse) error {
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			started = m.Started
		case *chatv1.GenerateResponse_Delta:
			text.WriteString(m.Delta.GetText())
		case *chatv1.GenerateResponse_End:
			body = openai.Completion(started, text.String(), m.End)
			ledger.Of(ctx).Metrics().OutBytes(len(body))
		}
		return nil
	})
	if o.Err != nil {
		writeError(c, o.Err.Reason.HTTPStatus(), outward(in, o.Err))
		return
	}
	c.Data(http.StatusOK, "application/json", body)
}

// outward is an error as the client reads it: its field has the name that the client gave it.
func outward(in *openai.Chat, err *streamerr.Error) *streamerr.Error {
	if err.Param == "" {
		return err
	}
	out := *err
	if out.Param = in.Param(err.Param); err.Param == "stream_id" {
		out.Param = requestIDHeader
	}
	if inner := strings.TrimPrefix(err.Param, "sampling."); inner != out.Param { // messages name the field, too
		out.Message = strings.ReplaceAll(out.Message, inner, out.Param)
	}
	return &out
}
