// Package pages serves the files of the console.
package pages

import (
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/route"

	"github.com/whence-dev/whence/api-service/web"
)

// IconByHabit is the icon that browsers request for pages that name no icon, such as the JSON of a
// stream.
const IconByHabit = "/favicon.ico"

// Routes adds the files to h.
func Routes(h *route.Engine) {
	for _, f := range web.Files() {
		serve := page(f)
		h.GET(f.Path, serve)
		h.HEAD(f.Path, serve)
		if f.Path == web.Icon {
			h.GET(IconByHabit, serve)
		}
	}
}

// page returns the handler of one file.
func page(f web.File) app.HandlerFunc {
	return func(_ context.Context, c *app.RequestContext) {
		c.Header("Content-Security-Policy", web.ContentSecurityPolicy)
		c.Header("X-Content-Type-Options", "nosniff")
		c.Header("Cache-Control", "no-cache")
		c.Header("ETag", f.ETag)
		if f.Fresh(string(c.GetHeader("If-None-Match"))) {
			c.Status(http.StatusNotModified)
			return
		}
		c.Data(http.StatusOK, f.ContentType, f.Body)
	}
}
