package edge

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/pulse"
	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// chatCompletions is POST /v1/chat/completions. conn is done when the client closes its connection.
func (e *Edge) chatCompletions(conn context.Context, c *app.RequestContext) {
	id := exchange.ID(c)
	in, policy, _, err := e.readChat(c, openai.ParseChat, e.config.Leave)
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	in.Request.StreamId = id
	var kept *replay.Head
	if policy.Keeps() {
		if kept, err = e.keep(conn, c, id, "", ""); err != nil {
			e.desk.Refuse(c, err)
			return
		}
		c.Header(tokenHeader, e.made(*kept).Token)
	}
	ctx, r, err := e.begin(traced(conn, c), in, policy, e.desk.Peer(c), kept)
	if err != nil {
		if kept != nil {
			e.replay.Forget(conn, id)
		}
		e.desk.Refuse(c, err)
		return
	}
	defer r.close()
	r.enter()
	defer context.AfterFunc(conn, func() { r.leave(gone()) })()
	defer pulse.Feel(c.GetConn(), e.config.ClientTimeout, vanished(r.leave))()
	if in.Stream {
		e.stream(ctx, c, in, r)
	} else {
		e.complete(ctx, c, in, r)
	}
	if r.kept && !r.started {
		e.replay.Forget(conn, id) // it was refused, and the client knows
	}
}

// readChat reads a request for a stream, and how it may be left: by its header, or as its key or otherwise says. It returns the body, too.
func (e *Edge) readChat(c *app.RequestContext, parse func([]byte) (*openai.Chat, error), otherwise leave.Policy) (*openai.Chat, leave.Policy, []byte, error) {
	body, err := e.desk.Body(c)
	if err != nil {
		return nil, otherwise, nil, err
	}
	in, err := parse(body)
	if err != nil {
		return nil, otherwise, nil, err
	}
	if in.Timeout, err = exchange.Timeout(c, in.Timeout); err != nil {
		return nil, otherwise, nil, err
	}
	entry := key(c)
	if in.Request.Claim, err = entry.Claim(in.Request.GetClaim().GetTier()); err != nil {
		return nil, otherwise, nil, err
	}
	policy := otherwise
	if entry != nil && entry.Leave != nil {
		policy = *entry.Leave
	}
	if header := string(c.GetHeader(leave.Header)); header != "" {
		policy, err = leave.Parse(header)
	}
	return in, policy, body, err
}

// complete answers with one body. Where the client has left, nobody sees the status.
func (e *Edge) complete(ctx context.Context, c *app.RequestContext, in *openai.Chat, r *run) {
	var started *streamv1.Started
	var text strings.Builder // bounded by the model's context
	var body []byte
	o := r.drive(ctx, in, func(out *chatv1.GenerateResponse) error {
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			started = m.Started
		case *chatv1.GenerateResponse_Delta:
			text.WriteString(m.Delta.GetText())
		case *chatv1.GenerateResponse_End:
			body = openai.Completion(started, text.String(), m.End)
			ledger.Of(ctx).OutBytes(len(body))
		}
		return nil
	})
	if o.Err != nil {
		answerError(ctx, c, in, o)
		return
	}
	toldStatus(ledger.Of(ctx), http.StatusOK)
	c.Data(http.StatusOK, "application/json", body)
	o.Told(ctx, strconv.Itoa(http.StatusOK))
}

// outward is an error as the client reads it: its field has the name that the client gave it.
func outward(in *openai.Chat, err *streamerr.Error) *streamerr.Error {
	if err.Param == "" {
		return err
	}
	out := *err
	if out.Param = in.Param(err.Param); err.Param == "stream_id" {
		out.Param = exchange.IDHeader
	}
	if inner := strings.TrimPrefix(err.Param, "sampling."); inner != out.Param { // messages name the field, too
		out.Message = strings.ReplaceAll(out.Message, inner, out.Param)
	}
	return &out
}
