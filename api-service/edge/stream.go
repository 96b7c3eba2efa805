package edge

import (
	"context"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol/sse"
	"github.com/cloudwego/netpoll"

	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
)

// errWriteTimeout is the error of a write that a client did not read in time.
var errWriteTimeout = netpoll.ErrWriteTimeout

// stream answers with server-sent events.
func (e *Edge) stream(ctx context.Context, c *app.RequestContext, in *openai.Chat) {
	w := &events{c: c, seen: ledger.Of(ctx).Metrics()}
	// Proxies and clients give up on connections that say nothing.
	waited := time.AfterFunc(e.config.HeadersAfter, func() { _ = w.early() }) // a client that is gone is noticed elsewhere
	var chunks *openai.Chunks
	o := rpc.Drive(ctx, e.hop, rpc.Chat, e.chat, in.Request, func(out *chatv1.GenerateResponse) error {
		var err error
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			waited.Stop()
			chunks = openai.NewChunks(m.Started, in.IncludeUsage)
			err = w.send(chunks.Role())
		case *chatv1.GenerateResponse_Delta:
			err = w.send(chunks.Delta(m.Delta.GetText()))
		case *chatv1.GenerateResponse_End:
			err = w.send(chunks.Finish(m.End))
			if usage := chunks.Usage(m.End); err == nil && usage != nil {
				err = w.send(usage)
			}
			if err == nil {
				err = w.send([]byte(openai.Done))
			}
		}
		if err != nil {
			return e.unwritten(err)
		}
		return nil
	})
	waited.Stop()
	if o.Err == nil {
		return
	}
	if !w.close() { // nothing has been sent: the status can still say it
		writeError(c, o.Err.Reason.HTTPStatus(), outward(in, o.Err))
		return
	}
	if err := w.send(outward(in, o.Err).JSON()); err != nil {
		_ = c.GetConn().Close() // a body without its end: never a clean end after a failure
	}
}

// events writes the events of one response. The handler owns it, but for early, which a timer calls.
type events struct {
	mu     sync.Mutex
	c      *app.RequestContext
	w      *sse.Writer // nil until the headers are written
	seen   *metrics.Stream
	closed bool // early comes too late
}

func (e *events) open() *sse.Writer {
	if e.w == nil {
		e.c.Header("X-Accel-Buffering", "no")
		unchunked(e.c)
		e.w = sse.NewWriter(e.c)
	}
	return e.w
}

// early sends the headers, and a comment that all clients skip.
func (e *events) early() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.w != nil {
		return nil
	}
	return e.open().WriteKeepAlive()
}

// send sends one data line.
func (e *events) send(data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen.OutBytes(len("data: ") + len(data) + len("\n\n"))
	return e.open().WriteEvent("", "", data)
}

// close keeps early from sending anything from now on, and reports whether the headers have been sent.
func (e *events) close() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return e.w != nil
}
