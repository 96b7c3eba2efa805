package edge

import (
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/gate"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// exposed are the headers of responses that pages of other origins may read.
const exposed = exchange.IDHeader + ", " + tokenHeader + ", Location, Retry-After, Server, Via"

// pass lets requests through that g does, and tells browsers which pages may read the answers.
func (e *Edge) pass(g *gate.Gate) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		if err := g.Host(string(c.Host())); err != nil {
			exchange.ID(c)
			c.Abort()
			e.desk.Refuse(c, exchange.WithStatus(http.StatusMisdirectedRequest, streamerr.InvalidParam("Host", "%v: %.64q; --host allows it", err, c.Host())))
			return
		}
		if origin := string(c.GetHeader("Origin")); origin != "" && g.Origin(origin) {
			c.Header("Access-Control-Allow-Origin", origin)
			c.Response.Header.Add("Vary", "Origin")
			c.Header("Access-Control-Expose-Headers", exposed)
			if string(c.Method()) == http.MethodOptions && len(c.GetHeader("Access-Control-Request-Method")) > 0 {
				c.Header("Access-Control-Allow-Methods", "GET, POST, DELETE")
				c.Header("Access-Control-Allow-Headers", string(c.GetHeader("Access-Control-Request-Headers")))
				c.Header("Access-Control-Max-Age", "600")
				c.AbortWithStatus(http.StatusNoContent)
				return
			}
		}
		c.Next(ctx)
	}
}
