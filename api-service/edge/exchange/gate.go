package exchange

import (
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/gate"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Pass is middleware that refuses requests that g rejects, and sets the CORS headers. exposed lists
// the response headers that pages of other origins may read, besides IDHeader.
func (d *Desk) Pass(g *gate.Gate, exposed string) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		if err := g.Host(string(c.Host())); err != nil {
			ID(c)
			c.Abort()
			d.Refuse(c, WithStatus(http.StatusMisdirectedRequest, streamerr.InvalidParam("Host", "%v: %.64q; --host allows it", err, c.Host())))
			return
		}
		if origin := string(c.GetHeader("Origin")); origin != "" && g.Origin(origin) {
			c.Header("Access-Control-Allow-Origin", origin)
			c.Response.Header.Add("Vary", "Origin")
			c.Header("Access-Control-Expose-Headers", IDHeader+", "+exposed)
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
