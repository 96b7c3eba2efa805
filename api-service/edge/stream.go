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
	"github.com/whence-dev/whence/pkg/rpc"
)

// stream answers with server-sent events, which the goroutine that drives the stream writes: a client that reads slowly slows the
// stream down.
func (e *Edge) stream(ctx context.Context, c *app.RequestContext, in *call.Call, r *run, d *delivery.Delivery) {
	defer e.deliveries.Close(d)
	w, send := e.writer(ctx, c, r, d)
	write := in.Events()
	o := r.drive(ctx, in, func(out *chatv1.GenerateResponse) error {
		err := write(out, send)
		if err == nil && out.GetDelta() != nil {
			d.Sent()
		}
		return err
	})
	e.tell(ctx, c, in, w, send, o)
}

// maxBehind bounds the unread bytes of a stream that outlives its client, beside the kernel's buffer. A client that
// exceeds it counts as having left, and the stream continues without it.
const maxBehind = 256 << 10

// relay is stream for a stream that outlives its client. A goroutine of the edge drives the stream, and Serve waits
// for that goroutine. A slow client slows down neither the stream nor its other readers.
func (e *Edge) relay(ctx, conn context.Context, c *app.RequestContext, in *call.Call, r *run, d *delivery.Delivery) {
	defer e.deliveries.Close(d)
	backlog := sse.NewBacklog(maxBehind)
	driven, answered := make(chan rpc.Outcome, 1), make(chan struct{})
	present, release := e.take(ctx, conn, c, r)
	write := in.Events()
	e.behind.Go(func() {
		defer r.finish(ctx)
		defer func() { <-answered }() // which takes as long as the grace of the stream at most
		defer backlog.End()
		driven <- r.drive(ctx, in, func(out *chatv1.GenerateResponse) error {
			token := out.GetDelta() != nil
			return write(out, func(data []byte) error {
				err := backlog.Put(data, token)
				token = false
				return err
			})
		})
	})
	defer close(answered)
	defer release()
	w, send := e.writer(ctx, c, r, d)
	for more := true; more; {
		var events []sse.Event
		events, more = backlog.Take(present)
		for _, event := range events {
			if err := send(event.Data); err != nil {
				r.leave(e.unwritten(err))
				w.Close()
				return
			}
			if event.Token {
				d.Sent()
			}
		}
	}
	select {
	case o := <-driven:
		e.tell(ctx, c, in, w, send, o)
	default:
		w.Close() // the client has left
	}
}

// writer returns the writer of a client's events, and the function that sends a data line.
func (e *Edge) writer(ctx context.Context, c *app.RequestContext, r *run, d *delivery.Delivery) (w *sse.Writer, send func(data []byte) error) {
	record := ledger.Of(ctx)
	opened := func() {
		exchange.ToldStatus(record, http.StatusOK)
		if d.Kept {
			e.offerToken(c, d.Head)
		}
	}
	w = sse.New(c, e.config.HeadersAfter, e.config.KeepAlive, opened, func(err error) { r.leave(e.unwritten(err)) })
	return w, func(data []byte) error {
		record.OutBytes(len("data: ") + len(data) + len("\n\n"))
		return w.Send(data)
	}
}

// tell ends the answer to a client with the outcome of its stream.
func (e *Edge) tell(ctx context.Context, c *app.RequestContext, in *call.Call, w *sse.Writer, send func(data []byte) error, o rpc.Outcome) {
	switch begun := w.Close(); {
	case o.Err == nil: // the last line was [DONE]
		o.Told(ctx, openai.Done)
	case !begun: // nothing has been sent: the status can still say it
		exchange.Failed(ctx, c, in.Param, o)
		return
	case send(exchange.Outward(in.Param, o.Err).JSON()) != nil:
		_ = c.GetConn().Close() // a body without its end: never a clean end after a failure
		return
	default:
		exchange.ToldEnding(ctx, exchange.ErrorLine, o)
	}
	if w.Finish() != nil {
		_ = c.GetConn().Close()
	}
}
