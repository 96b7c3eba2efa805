package edge

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/operate"
	"github.com/whence-dev/whence/api-service/responses"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// countInput handles POST /v1/responses/input_tokens.
func (e *Edge) countInput(conn context.Context, c *app.RequestContext) {
	exchange.ID(c)
	body, err := e.countedInput(conn, c)
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	exchange.JSON(c, body)
}

func (e *Edge) countedInput(conn context.Context, c *app.RequestContext) ([]byte, error) {
	in, _, err := read(conn, e, c, responses.ParseCount)
	if err == nil {
		err = e.meter.Count(conn, c)
	}
	if err == nil {
		err = exchange.Caller(conn).Entry.Model(in.Request.GetModel())
	}
	if err == nil {
		err = e.continueEarlier(conn, c, in, nil)
	}
	if err != nil {
		return nil, err
	}
	asked, err := responses.Tokenize(in)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(conn, operate.AskTimeout)
	defer cancel()
	resp, err := e.chats.Tokenize(ctx, asked)
	if err != nil {
		return nil, exchange.Outward(in.Param, streamerr.As(err))
	}
	return responses.Counted(resp), nil
}
