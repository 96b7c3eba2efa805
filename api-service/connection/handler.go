package connection

import (
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"
)

// Handler returns the handler of Hertz that answers as h does, in one piece.
func Handler(h http.Handler) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		in, err := http.NewRequestWithContext(ctx, string(c.Method()), c.URI().String(), BodyOf(c))
		if err != nil { // the URI is none for net/http
			c.SetStatusCode(http.StatusBadRequest)
			return
		}
		c.Request.Header.VisitAll(func(name, value []byte) { in.Header.Add(string(name), string(value)) })
		in.RemoteAddr, in.RequestURI = c.RemoteAddr().String(), string(c.Request.RequestURI())
		h.ServeHTTP(&responseWriter{c: c, header: http.Header{}}, in)
	}
}

// A responseWriter fills a response of Hertz.
type responseWriter struct {
	c      *app.RequestContext
	header http.Header
	wrote  bool // the header
}

// Header implements http.ResponseWriter.
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *responseWriter) WriteHeader(status int) {
	if w.wrote {
		return
	}
	w.wrote = true
	w.c.SetStatusCode(status)
	for name, values := range w.header {
		for _, value := range values {
			w.c.Response.Header.Add(name, value)
		}
	}
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.c.Response.AppendBody(b)
	return len(b), nil
}
