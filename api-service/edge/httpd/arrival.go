package httpd

import (
	"context"
	"errors"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	errs "github.com/cloudwego/hertz/pkg/common/errors"
	"github.com/cloudwego/hertz/pkg/common/tracer/stats"
	"github.com/cloudwego/hertz/pkg/common/tracer/traceinfo"
	"github.com/cloudwego/hertz/pkg/network"
)

// MaxHeader bounds a request's header, in bytes. A longer header is answered with 431.
const MaxHeader = 64 << 10

// lingerFor is how long the rest of a refused request is read and dropped. Closing a connection
// with unread bytes resets the connection, and the reset can overtake the response.
const lingerFor = time.Second

// An Arrival bounds the time in which a request must arrive, header and body together, and the
// announced size of a body. Package socket bounds how long a new connection may send nothing.
//
// Hertz itself bounds each read, so it would wait forever for a client that sends a byte now and
// then. Hertz also asks for the body and waits for its first 8 KiB before it calls a handler,
// however large the announced body is. An Arrival is a tracer because Hertz tells only tracers when
// it starts to read a request and when it has read the header.
type Arrival struct {
	Within  time.Duration
	MaxBody int64 // bytes
}

// Start implements tracer.Tracer. The idle timeout that Hertz sets before the next request removes
// the deadline.
func (a Arrival) Start(ctx context.Context, c *app.RequestContext) context.Context {
	h := headerOf(c)
	if h == nil { // otherwise Hertz reuses a context, which keeps its values
		inner := c.GetTraceInfo()
		h = &header{TraceInfo: inner, HTTPStats: inner.Stats(), c: c}
		c.SetTraceInfo(h)
	}
	h.max, h.tooLarge = a.MaxBody, false
	_ = c.GetConn().SetReadDeadline(time.Now().Add(a.Within)) // never fails with netpoll
	return ctx
}

// Finish implements tracer.Tracer. Hertz has answered, and is about to read the next request or to
// close the connection.
func (a Arrival) Finish(_ context.Context, c *app.RequestContext) {
	if h := headerOf(c); h != nil && (h.tooLarge || errors.Is(h.Error(), errs.ErrHeaderTooLarge)) {
		linger(c.GetConn())
	}
}

// TooLarge reports whether a request has announced a body over MaxBody. The body has not been read,
// and must not be: the handler refuses the request and closes the connection.
func TooLarge(c *app.RequestContext) bool {
	h := headerOf(c)
	return h != nil && h.tooLarge
}

// A header inspects the header of each request of a context before Hertz asks for the body.
type header struct {
	traceinfo.TraceInfo
	traceinfo.HTTPStats
	c        *app.RequestContext
	max      int64
	tooLarge bool
}

func headerOf(c *app.RequestContext) *header {
	h, _ := c.GetTraceInfo().(*header)
	return h
}

// Stats implements traceinfo.TraceInfo.
func (h *header) Stats() traceinfo.HTTPStats { return h }

// Reset implements traceinfo.TraceInfo and traceinfo.HTTPStats.
func (h *header) Reset() {
	h.TraceInfo.Reset()
	h.HTTPStats.Reset()
}

// Record implements traceinfo.HTTPStats. It hides a body that is too large from Hertz: Hertz then
// sends no 100 Continue, and calls the handler at once.
func (h *header) Record(event stats.Event, status stats.Status, info string) {
	h.HTTPStats.Record(event, status, info)
	if event != stats.ReadBodyStart || int64(h.c.Request.Header.ContentLength()) <= h.max {
		return
	}
	h.tooLarge = true
	h.c.Request.Header.SetContentLength(0)
	h.c.Request.Header.Del("Expect")
}

// linger reads and drops data on a connection that is about to be closed, until the client closes
// it or lingerFor has passed.
func linger(conn network.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(lingerFor))
	for {
		if _, err := conn.Peek(1); err != nil {
			return
		}
		if conn.Skip(conn.Len()) != nil || conn.Release() != nil {
			return
		}
	}
}
