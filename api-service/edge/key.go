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
)

// authenticate is the middleware of the listener of guard. It refuses requests without a key of the key file, except
// for routes that need no key and for read tokens. The operator's key passes as well; handlers decide what it allows.
func (e *Edge) authenticate(guard *access.Guard) app.HandlerFunc {
	open := map[string]bool{"/healthz": true, "/readyz": true, "/health": true, "/ping": true, "/version": true, "/api/version": true}
	if e.config.PoolMetrics {
		open["/metrics"] = guard == e.guard
	}
	if e.hasConsole(guard) {
		open[pages.IconByHabit] = true
		for _, f := range web.Files() {
			open[f.Path] = true
		}
	}
	return func(ctx context.Context, c *app.RequestContext) {
		exchange.TakeKey(c)
		if err := websocket.TakeKey(c); err != nil {
			exchange.ID(c)
			c.Abort()
			e.desk.Refuse(c, err)
			return
		}
		if open[string(c.Path())] {
			c.Next(ctx)
			return
		}
		if readers.Tokened(c) && len(c.GetHeader(keys.Header)) == 0 {
			c.Next(exchange.WithCaller(ctx, guard.Anonymous()))
			return
		}
		identified, err := exchange.Identify(ctx, c, guard)
		if err != nil {
			exchange.ID(c)
			c.Abort()
			e.desk.Refuse(c, err)
			return
		}
		c.Next(identified)
	}
}
