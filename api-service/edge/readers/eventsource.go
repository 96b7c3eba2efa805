package readers

import (
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// refuse answers a request for events with an error. If the request may succeed later, a browser's
// EventSource gets an event stream without events, and reconnects: after any status other than 200
// it would give up for good.
func (r *Readers) refuse(c *app.RequestContext, err error) {
	r.Desk.Refuse(c, err)
	status := c.Response.StatusCode()
	later := status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests
	if !later || !eventSource(c) {
		return
	}
	cause := streamerr.As(err)
	again := max(cause.RetryAfter, retryAfter)
	c.Response.ResetBody()
	c.Header("Cache-Control", "no-store")
	c.Data(http.StatusOK, "text/event-stream", fmt.Appendf(nil, "retry: %d\n: %s: %q\n\n",
		int(math.Ceil(float64(again)/float64(time.Millisecond))), cause.Reason, cause.Text()))
}

// eventSource reports whether a request may come from a browser's EventSource. Clients that
// understand refusals accept JSON, too.
func eventSource(c *app.RequestContext) bool {
	return string(c.GetHeader("Accept")) == "text/event-stream" && len(c.GetHeader("Authorization")) == 0
}
