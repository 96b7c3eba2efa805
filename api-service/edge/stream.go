package edge

import (
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/delivery"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/sse"
	"github.com/whence-dev/whence/api-service/extent"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
)

// An answer writes a stream as events to the client that asked for the stream. The goroutine that
// carries an item encodes it once, into a buffer of the answer, and writes it to the
// client's socket.
type answer struct {
	edge     *Edge
	ctx      context.Context //nolint:containedctx // the stream's
	client   *clientconn.Conn
	call     *call.Call
	run      *run
	delivery *delivery.Delivery
	browser  bool // the client is a page in a browser
	needsEnd bool // the client needs the regular end of a body

	form   *call.Form
	encode call.Writer
	lines  sse.Encoder
	extent extent.Tracker
	held   int // pieces that the encoder holds back until the end of their choice
}

func (e *Edge) newAnswer(ctx context.Context, c *app.RequestContext, client *clientconn.Conn, in *call.Call, r *run, d *delivery.Delivery) *answer {
	a := &answer{
		edge: e, ctx: ctx, client: client, call: in, run: r, delivery: d,
		browser: exchange.Browser(c), needsEnd: exchange.NeedsEnd(c),
		form: exchange.Form(c), encode: in.Events(),
		extent: extent.Tracker{Choices: call.Choices(in.Request)},
	}
	a.lines = sse.Encoder{Identity: client.Identity(), Lines: a.form.Lines}
	events := clientconn.Events{First: e.config.HeadersAfter, KeepAlive: e.config.KeepAlive, Lines: a.form.Lines, Sent: d.Sent, Opened: func(h *protocol.ResponseHeader) {
		exchange.RecordStatus(r.record, http.StatusOK)
		id, epoch := r.naming.tell()
		if id != d.ID {
			e.deliveries.Rename(d, id, epoch)
			exchange.SetID(h, a.form, id)
		}
		if d.Kept != nil {
			e.offerToken(h, *d.Kept)
		}
	}}
	if events.Lines {
		events.KeepAlive = 0
	}
	if ping := a.form.Ping; ping != nil {
		events.Ping = func(lines *sse.Encoder) { ping(lines) }
	}
	client.Begin(events)
	return a
}

// write writes an item without waiting for the client. waits reports that the client has not taken
// all of it yet.
func (a *answer) write(out *chatv1.GenerateResponse) (waits bool, err error) {
	a.encode(out, &a.lines)
	mark := clientconn.Mark{Extent: a.extent.Take(out), At: a.lines.AnsweredAt(), Last: out.GetEnd() != nil}
	encoded, size := a.lines.Take()
	defer a.lines.Release()
	events := 0
	if out.GetDelta() != nil {
		events = 1
	}
	if size == 0 && (out.GetStarted() == nil || !a.call.Opens) {
		a.held += events
		return false, nil
	}
	events, a.held = events+a.held, 0
	if mark.At == 0 {
		mark.At = len(encoded)
	}
	a.run.record.OutBytes(size)
	return a.client.WriteMarked(encoded, events, mark)
}

// stream answers the request c with server-sent events. The goroutine that carries an item waits
// until the client has taken it, so a slow client slows the stream down. If other goroutines carry
// the items, stream returns before the answer has ended. finish is called when the client
// has been answered.
func (e *Edge) stream(c *app.RequestContext, a *answer, finish func()) {
	a.client.Detach(c)
	e.behind.Add(1)
	a.run.start(prefetch.WithTouched(a.ctx, a), a.call, a.send, func(o rpc.Outcome) {
		defer e.behind.Done()
		defer finish()
		defer e.deliveries.Close(a.delivery) // also after a panic
		a.tell(o)
	})
}

// Touched implements prefetch.Toucher: write touches these objects.
func (a *answer) Touched(to *prefetch.List) {
	a.client.Touched(to)
	to.Add(prefetch.Of(a), prefetch.Of(a.delivery), prefetch.Func(a.encode))
	if a.call.Touched != nil {
		a.call.Touched(to)
	}
}

// send writes an item, and waits until the client has taken it.
func (a *answer) send(on *stream.Loop, out *chatv1.GenerateResponse) error {
	waits, err := a.write(out)
	if err == nil && waits {
		on.Wait()
		err = a.client.Flush()
	}
	return err
}

// relay is stream for a stream that outlives its client. A goroutine of the edge drives the stream
// and writes to the client, and Drain waits for that goroutine. A slow client slows down neither the
// stream nor its other readers.
func (e *Edge) relay(ctx, conn context.Context, c *app.RequestContext, in *call.Call, r *run, d *delivery.Delivery) {
	defer e.deliveries.Close(d)
	present, leave := context.WithCancel(conn)
	defer leave()
	client, release := e.take(ctx, conn, c, r, leave)
	a := e.newAnswer(ctx, c, client, in, r, d)
	outcome, driven, answered := make(chan rpc.Outcome, 1), make(chan struct{}), make(chan struct{})
	e.behind.Go(func() {
		defer r.finish(ctx)
		defer func() { <-answered }() // takes at most the grace of the stream
		defer close(driven)
		outcome <- r.drive(ctx, in, func(_ *stream.Loop, out *chatv1.GenerateResponse) error {
			_, err := a.write(out)
			return err
		})
	})
	defer release() // may wait for the client, when the run has finished
	defer close(answered)
	select {
	case <-driven:
	case <-present.Done():
	}
	select {
	case o := <-outcome:
		a.tell(o)
	default:
		client.EndComments() // the client has left
	}
}

// tell ends the answer with the outcome of the stream.
func (a *answer) tell(o rpc.Outcome) {
	switch opened := a.client.EndComments(); {
	case o.Err == nil: // the last event says that the stream completed
		o.EndingSent(a.ctx, a.form.LastEvent(a.call))
		a.lines.Finish()
		a.flush()
	case !opened: // nothing has been sent, so the status can still report the error
		exchange.Failed(a.ctx, a.form, a.client, a.call.Param, o)
	default:
		// The body gets no end: clients that skip unknown events would take it for a whole answer.
		a.form.Fail(a.call, exchange.Outward(a.call.Param, o.Err), a.delivery.ID, &a.lines)
		if a.needsEnd {
			a.lines.Finish()
		}
		if a.flush() {
			exchange.RecordEnding(a.ctx, exchange.ErrorLine, o)
			if !a.needsEnd {
				a.client.Break(a.browser)
			}
		}
	}
}

// flush writes the encoded bytes, and reports whether the client has taken them. If not, flush
// truncates the body: a failed stream never ends cleanly.
func (a *answer) flush() (taken bool) {
	encoded, size := a.lines.Take()
	defer a.lines.Release()
	if size > 0 {
		a.run.record.OutBytes(size)
	}
	if len(encoded) > 0 && a.client.Send(encoded, 0) != nil || a.client.Flush() != nil {
		a.client.Cut()
		return false
	}
	return true
}
