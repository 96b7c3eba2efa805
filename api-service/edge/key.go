package edge

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/pages"
	"github.com/whence-dev/whence/api-service/edge/readers"
	"github.com/whence-dev/whence/api-service/edge/websocket"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/api-service/web"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// authenticate refuses requests without a key of the key file, except for routes that need no key and for read
// tokens. The operator's key passes as well; handlers decide what it allows.
func (e *Edge) authenticate() app.HandlerFunc {
	open := map[string]bool{"/healthz": true, "/readyz": true, pages.IconByHabit: true}
	for _, f := range web.Files() {
		open[f.Path] = true
	}
	return func(ctx context.Context, c *app.RequestContext) {
		exchange.TakeKey(c)
		if err := websocket.TakeKey(c); err != nil {
			exchange.ID(c)
			c.Abort()
			e.desk.Refuse(c, err)
			return
		}
		if open[string(c.Path())] || readers.Tokened(c) && len(c.GetHeader(keys.Header)) == 0 {
			c.Next(ctx)
			return
		}
		if _, err := e.caller(c); err != nil {
			exchange.ID(c)
			c.Abort()
			e.desk.Refuse(c, err)
			return
		}
		c.Next(ctx)
	}
}

// caller identifies the caller of a request.
func (e *Edge) caller(c *app.RequestContext) (access.Caller, error) {
	return exchange.Caller(c, e.guard)
}

// maker identifies the caller of a request that makes a stream. With a key file, the operator's key cannot make
// streams.
func (e *Edge) maker(c *app.RequestContext) (access.Caller, error) {
	caller, err := e.caller(c)
	if err == nil && caller.Operates && e.guard.Keys != nil {
		return access.Caller{}, &streamerr.Error{Reason: streamerr.Forbidden, Param: keys.Header, Message: "the operator's key makes no streams; use an API key"}
	}
	return caller, err
}
