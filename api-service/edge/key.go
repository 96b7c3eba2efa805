package edge

import (
	"context"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/api-service/web"
)

// keyOf names the entry of a request's key among what handlers pass each other.
const keyOf = "whence key"

// known lets requests through that have a key of the ring, and those that need none.
func (e *Edge) known() app.HandlerFunc {
	open := map[string]bool{"/healthz": true, "/readyz": true}
	for _, f := range web.Files() {
		open[f.Path] = true
	}
	return func(ctx context.Context, c *app.RequestContext) {
		path := string(c.Path())
		// Browsers' EventSource sends no headers; the handler checks the token.
		tokened := strings.HasPrefix(path, "/v1/streams/") && (strings.HasSuffix(path, "/events") || strings.HasSuffix(path, "/seen")) && c.Query(follow.TokenParam) != "" && len(c.GetHeader(keys.Header)) == 0
		if open[path] || tokened {
			c.Next(ctx)
			return
		}
		header := string(c.GetHeader(keys.Header))
		key, err := e.keys.Find(header)
		if r := e.rights(); err != nil && r.Operates(header) {
			err = nil // whom handlers tell from others
		}
		if err != nil {
			exchange.ID(c)
			c.Abort()
			c.Header("WWW-Authenticate", "Bearer")
			e.desk.Refuse(c, err)
			return
		}
		c.Set(keyOf, key)
		c.Next(ctx)
	}
}

// key returns what the request's key stands for.
func key(c *app.RequestContext) *keys.Entry {
	entry, _ := c.Value(keyOf).(*keys.Entry)
	return entry
}
