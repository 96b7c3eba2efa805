package httpd

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	errs "github.com/cloudwego/hertz/pkg/common/errors"
	"github.com/cloudwego/hertz/pkg/common/tracer/stats"
	"github.com/cloudwego/hertz/pkg/common/tracer/traceinfo"
	"github.com/cloudwego/hertz/pkg/network"
)

// lingerFor is how long the rest of a refused request is read and dropped. Closing a connection
// with unread bytes resets the connection, and the reset can overtake the response.
const lingerFor = time.Second

// An Arrival bounds the time in which a request must arrive, header and body together, and the bytes
// of its header. Package socket bounds how long a new connection may send nothing.
//
// Hertz itself bounds each read, so it would wait forever for a client that sends a byte now and
// then. Hertz also reads bodies without bounds, so the Arrival hides the body from Hertz, and the
// handler reads it through a Body. An Arrival is a tracer because Hertz tells only tracers when it
// starts to read a request and when it has read the header.
type Arrival struct {
	Within time.Duration
}

// A Watcher is a connection that can close itself when its client sends too much while a handler
// runs, which may not read.
type Watcher interface {
	// Watch starts, with the announced length of the request's body: -1 for a body in chunks.
	Watch(body int64)
	BodyRead()
	Unwatch()
	Left() bool // the handler has left
}

// Start implements tracer.Tracer. It waits for the header of the request. The idle timeout that
// Hertz sets before the next request removes the deadline.
func (a Arrival) Start(ctx context.Context, c *app.RequestContext) context.Context {
	h := headerOf(c)
	if h == nil { // otherwise Hertz reuses a context, which keeps its values
		inner := c.GetTraceInfo()
		h = &header{TraceInfo: inner, HTTPStats: inner.Stats(), c: c}
		c.SetTraceInfo(h)
	}
	conn := c.GetConn()
	h.head, h.body = head{}, newBody(conn, 0, false)
	_ = conn.SetReadDeadline(time.Now().Add(a.Within)) // never fails with netpoll
	h.arrive(conn)
	return ctx
}

// Finish implements tracer.Tracer. Hertz has answered, and is about to read the next request or to
// close the connection.
func (a Arrival) Finish(_ context.Context, c *app.RequestContext) {
	h := headerOf(c)
	if h == nil {
		return
	}
	conn := c.GetConn()
	if w, ok := conn.(Watcher); ok {
		w.Unwatch()
		if w.Left() {
			return // the answer is being written, and nothing else may be read here
		}
	}
	closes := c.Request.Header.ConnectionClose() || c.Response.ConnectionClose()
	switch {
	case errors.Is(h.Error(), errs.ErrHeaderTooLarge) || !h.http1() || closes && h.body.Unread():
		linger(conn)
	case h.body.Unread() && h.body.skip() != nil:
		linger(conn)
		_ = conn.Close() // Hertz finds it closed
	}
}

// A Refusal is the reason why the header of a request is refused, before a handler sees the request.
type Refusal int

// The Refusals. Accepted is none.
const (
	Accepted Refusal = iota
	TooMany          // the header has more than 200 fields
	NotHTTP1         // the request is of another version of HTTP
)

// Check reports whether the header of a request can be accepted.
func Check(c *app.RequestContext) Refusal {
	h := headerOf(c)
	switch {
	case h == nil:
		return Accepted
	case !h.http1():
		return NotHTTP1
	case h.head.fields() > MaxFields:
		return TooMany
	}
	return Accepted
}

// End prepares the end of a request that a handler has answered: if the rest of the body is long, the
// connection closes after the answer.
func End(c *app.RequestContext) {
	if h := headerOf(c); h != nil && h.body.Unread() && !h.body.skippable() {
		c.SetConnectionClose()
	}
}

// A header inspects the header of each request of a context, before Hertz asks for the body.
type header struct {
	traceinfo.TraceInfo
	traceinfo.HTTPStats
	c    *app.RequestContext
	head head
	body Body
}

func headerOf(c *app.RequestContext) *header {
	h, _ := c.GetTraceInfo().(*header)
	return h
}

// arrive waits until Hertz can parse the header of a request, or the connection fails: then Hertz
// finds the same failure.
func (h *header) arrive(conn network.Conn) {
	for n := 1; ; n = h.head.seen + 1 {
		if _, err := conn.Peek(n); err != nil {
			return
		}
		b, err := conn.Peek(min(conn.Len(), MaxHeader))
		if err != nil || h.head.follow(b) {
			return
		}
	}
}

// http1 reports whether the request line, if there is one, names a version that Hertz speaks.
func (h *header) http1() bool { return h.head.lines == 0 || h.head.wrong || h.head.http1 }

// Stats implements traceinfo.TraceInfo.
func (h *header) Stats() traceinfo.HTTPStats { return h }

// Reset implements traceinfo.TraceInfo and traceinfo.HTTPStats.
func (h *header) Reset() {
	h.TraceInfo.Reset()
	h.HTTPStats.Reset()
	h.body = Body{err: io.EOF}
}

// Record implements traceinfo.HTTPStats. It hides the body from Hertz: Hertz then sends no 100
// Continue, and calls the handler at once.
func (h *header) Record(event stats.Event, status stats.Status, info string) {
	h.HTTPStats.Record(event, status, info)
	if event != stats.ReadBodyStart {
		return
	}
	request := &h.c.Request.Header
	length := request.ContentLength()
	if length == noBody {
		length = 0
	}
	if w, ok := h.c.GetConn().(Watcher); ok {
		w.Watch(int64(length))
	}
	if length == 0 {
		return
	}
	h.body = newBody(h.c.GetConn(), int64(length), h.c.Request.MayContinue())
	request.SetContentLength(0)
	request.Del("Expect")
}

// noBody is Hertz's length of a request that announces no body.
const noBody = -2

// linger reads and drops data on a connection that is about to be closed, until the client closes
// it or lingerFor has passed.
func linger(conn network.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(lingerFor))             // never fails with netpoll
	for end := time.Now().Add(lingerFor); time.Now().Before(end); { // data that is there has no deadline
		if _, err := conn.Peek(1); err != nil {
			return
		}
		if conn.Skip(conn.Len()) != nil || conn.Release() != nil {
			return
		}
	}
}
