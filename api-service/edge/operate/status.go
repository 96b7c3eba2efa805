package operate

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// askTimeout bounds the calls to chat-services outside of streams.
const askTimeout = 2 * time.Second

func (o *Operator) askModels(ctx context.Context) ([]*chatv1.Model, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return o.Chats.Models(ctx)
}

// models handles GET /v1/models.
func (o *Operator) models(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	models, err := o.askModels(ctx)
	if err != nil {
		o.Refuse(c, err)
		return
	}
	exchange.JSON(c, openai.Models(models))
}

// model handles GET /v1/models/{id}; ids may contain slashes.
func (o *Operator) model(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	models, err := o.askModels(ctx)
	if err != nil {
		o.Refuse(c, err)
		return
	}
	id := strings.TrimPrefix(c.Param("id"), "/")
	for _, m := range models {
		if m.GetId() == id || slices.Contains(m.GetAliases(), id) {
			exchange.JSON(c, openai.Model(m))
			return
		}
	}
	missing := streamerr.New(streamerr.NotFound, "the model %q does not exist", id).WithCode(streamerr.CodeModelNotFound)
	missing.Param = "model"
	o.Refuse(c, missing)
}

// healthz reports that the process is alive.
func (o *Operator) healthz(_ context.Context, c *app.RequestContext) {
	c.String(http.StatusOK, "ok\n")
}

// readyz reports whether a request would be answered: this instance takes streams, and a
// chat-service has a worker.
func (o *Operator) readyz(ctx context.Context, c *app.RequestContext) {
	if o.Hop.Live.Closed() {
		c.String(http.StatusServiceUnavailable, "draining\n")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := o.Chats.Ready(ctx); err != nil {
		c.String(http.StatusServiceUnavailable, "%s\n", streamerr.As(err).Text())
		return
	}
	c.String(http.StatusOK, "ok\n")
}
