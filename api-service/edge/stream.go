package edge

import (
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/delivery"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/sse"
	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/ledger"
)

// stream answers with server-sent events.
func (e *Edge) stream(ctx context.Context, c *app.RequestContext, in *call.Call, r *run, d *delivery.Delivery) {
	record := ledger.Of(ctx)
	opened := func() {
		exchange.ToldStatus(record, http.StatusOK)
		if d.Kept {
			e.offerToken(c, d.Head)
		}
	}
	w := sse.New(c, e.config.HeadersAfter, e.config.KeepAlive, opened, func(err error) { r.leave(e.unwritten(err)) })
	send := func(data []byte) error {
		record.OutBytes(len("data: ") + len(data) + len("\n\n"))
		return w.Send(data)
	}
	write := in.Events()
	o := r.drive(ctx, in, func(out *chatv1.GenerateResponse) error {
		err := write(out, send)
		if err == nil && out.GetDelta() != nil {
			d.Sent()
		}
		return err
	})
	begun := w.Close()
	if o.Err == nil {
		o.Told(ctx, openai.Done)
		return
	}
	if !begun { // nothing has been sent: the status can still say it
		exchange.Failed(ctx, c, in.Param, o)
		return
	}
	if err := send(exchange.Outward(in.Param, o.Err).JSON()); err != nil {
		_ = c.GetConn().Close() // a body without its end: never a clean end after a failure
		return
	}
	exchange.ToldEnding(ctx, exchange.ErrorLine, o)
}
