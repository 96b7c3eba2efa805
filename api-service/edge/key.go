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

// known lets requests through that have a key of the ring, and those that need none. The operator's key is none of the ring:
// handlers tell whose it is, and streams are not made with it.
func (e *Edge) known() app.HandlerFunc {
	open := map[string]bool{"/healthz": true, "/readyz": true, iconByHabit: true}
	for _, f := range web.Files() {
		open[f.Path] = true
	}
	return func(ctx context.Context, c *app.RequestContext) {
		header := string(c.GetHeader(keys.Header))
		r := e.rights()
		if open[string(c.Path())] || tokened(c) && header == "" || r.Operates(header) {
			c.Next(ctx)
			return
		}
		if _, err := e.asker(c); err != nil {
			exchange.ID(c)
			c.Abort()
			e.desk.Refuse(c, err)
			return
		}
		c.Next(ctx)
	}
}

// tokened reports whether a request is one for which a read token will do, and has one: browsers' EventSource sends no headers. The
// handler checks it.
func tokened(c *app.RequestContext) bool {
	rest, ok := strings.CutPrefix(string(c.Path()), "/v1/streams/")
	_, what, _ := strings.Cut(rest, "/")
	return ok && (what == "events" || what == "seen") && c.Query(follow.TokenParam) != ""
}

// asker returns what the request's key stands for.
func (e *Edge) asker(c *app.RequestContext) (*keys.Entry, error) {
	entry, err := e.keys.Find(string(c.GetHeader(keys.Header)))
	if err != nil {
		c.Header("WWW-Authenticate", "Bearer")
	}
	return entry, err
}
