package sse

import (
	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/protocol/http1/resp"
)

// An identity writes a body to a client of HTTP/1.0, which knows no chunks: as it is, up to the end of the connection.
type identity struct {
	c       *app.RequestContext
	w       network.Writer
	started bool
}

// unchunked has the response of c written without chunks, if its client knows none.
func unchunked(c *app.RequestContext) {
	if !c.Request.Header.IsHTTP11() {
		c.SetConnectionClose()
		c.Response.HijackWriter(&identity{c: c, w: c.GetWriter()})
	}
}

// untilClose is Hertz's content length for that.
const untilClose = -2

// Write implements network.ExtWriter.
func (i *identity) Write(b []byte) (int, error) {
	if !i.started {
		i.started = true
		i.c.Response.Header.SetContentLength(untilClose)
		if err := resp.WriteHeader(&i.c.Response.Header, i.w); err != nil {
			return 0, err
		}
	}
	return i.w.WriteBinary(b)
}

// Flush implements network.ExtWriter.
func (i *identity) Flush() error { return i.w.Flush() }

// Finalize implements network.ExtWriter.
func (i *identity) Finalize() error { return i.w.Flush() }
