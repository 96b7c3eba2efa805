package httpd

import (
	"context"
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
)

// An Arrival bounds how long a request may take to come, header and body together, and how long a new connection may send nothing.
// Hertz bounds each of its reads instead: whoever sends a byte now and then would be waited for without end, and whoever sends none,
// too, since it begins to read with the first. It is a tracer because Hertz tells nobody else that it begins to read a request.
type Arrival time.Duration

// silence names the timer of a connection that has sent nothing.
type silence struct{}

// Accepted bounds the time until the first byte of a connection. The returned context is the connection's.
func (a Arrival) Accepted(ctx context.Context, conn net.Conn) context.Context {
	timer := time.AfterFunc(time.Duration(a), func() { _ = conn.Close() }) // nothing is under way
	return context.WithValue(ctx, silence{}, timer)
}

// Start implements tracer.Tracer. The idle timeout that Hertz sets before the next request takes the deadline away.
func (a Arrival) Start(ctx context.Context, c *app.RequestContext) context.Context {
	if timer, ok := ctx.Value(silence{}).(*time.Timer); ok {
		timer.Stop()
	}
	_ = c.GetConn().SetReadDeadline(time.Now().Add(time.Duration(a))) // netpoll's never fails
	return ctx
}

// Finish implements tracer.Tracer.
func (a Arrival) Finish(context.Context, *app.RequestContext) {}
