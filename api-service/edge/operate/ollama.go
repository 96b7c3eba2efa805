package operate

import (
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/route"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/ollama"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// OllamaRoutes adds the routes of Ollama's API that run no stream.
func (o *Operator) OllamaRoutes(h *route.Engine) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		h.Handle(method, "/api/version", func(_ context.Context, c *app.RequestContext) { exchange.JSON(c, ollama.Version(cli.Release())) })
		h.Handle(method, "/api/tags", o.ollamaList(ollama.Tags))
		h.Handle(method, "/api/ps", o.ollamaList(ollama.Running))
	}
	h.POST("/api/show", o.named(ollama.Show, ""))
	h.POST("/api/pull", o.named(func(*chatv1.Model) []byte { return []byte(ollama.Pulled + "\n") }, ", and is not pulled: "+cards))
	for _, path := range []string{"/api/push", "/api/create", "/api/copy", "/api/blobs/:digest"} {
		h.POST(path, o.unmanaged)
	}
	h.DELETE("/api/delete", o.unmanaged)
	h.HEAD("/api/blobs/:digest", o.unmanaged)
}

// ollamaList returns the handler of a list of models.
func (o *Operator) ollamaList(encode func([]*chatv1.Model) []byte) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		exchange.ID(c)
		models, err := o.askModels(ctx)
		if err != nil {
			o.Refuse(c, err)
			return
		}
		exchange.JSON(c, encode(models))
	}
}

// cards says why clients cannot change the models.
const cards = "the models of this server are cards in its configuration, which clients do not change; GET /api/tags lists them"

// named returns the handler of requests about one model. The message about a missing model ends with hint.
func (o *Operator) named(encode func(*chatv1.Model) []byte, hint string) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		o.convert(ctx, c, func(body []byte) ([]byte, error) {
			named, err := exchange.Parse(o.Desk, c, body, ollama.ParseModelName)
			if err != nil {
				return nil, err
			}
			m, err := o.find(ctx, named.Model)
			if err == nil {
				return encode(m), nil
			}
			if e := streamerr.As(err); e.Reason == streamerr.NotFound {
				e.Message += hint
			}
			return nil, err
		})
	}
}

// Load answers a call that only asks for its model to be loaded: models always are.
func (o *Operator) Load(ctx context.Context, c *app.RequestContext, in *call.Call) {
	err := o.Meter.Count(ctx, c)
	if err == nil {
		_, err = o.find(ctx, in.Request.GetModel())
	}
	if err != nil {
		o.Refuse(c, err)
		return
	}
	exchange.JSON(c, in.Loaded())
}

// unmanaged refuses requests that would change the models.
func (o *Operator) unmanaged(_ context.Context, c *app.RequestContext) {
	exchange.ID(c)
	o.Refuse(c, streamerr.New(streamerr.Invalid, "%s is not offered: %s", c.FullPath(), cards))
}
