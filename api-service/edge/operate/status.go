package operate

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// askTimeout bounds the calls that are no streams.
const askTimeout = 2 * time.Second

func (o *Operator) askModels(ctx context.Context) ([]*chatv1.Model, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := o.Chat.Models(ctx, &chatv1.ModelsRequest{})
	if err != nil {
		return nil, streamerr.FromGRPC(exchange.ChatService, err)
	}
	return resp.GetModels(), nil
}

// models is GET /v1/models.
func (o *Operator) models(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	models, err := o.askModels(ctx)
	if err != nil {
		o.Refuse(c, err)
		return
	}
	exchange.JSON(c, openai.Models(models))
}

// model is GET /v1/models/{id}; ids may have slashes.
func (o *Operator) model(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	models, err := o.askModels(ctx)
	if err != nil {
		o.Refuse(c, err)
		return
	}
	id := strings.TrimPrefix(c.Param("id"), "/")
	for _, m := range models {
		if m.GetId() == id {
			exchange.JSON(c, openai.Model(m))
			return
		}
	}
	missing := streamerr.New(streamerr.NotFound, "the model %q does not exist", id)
	missing.Param = "model"
	o.Refuse(c, missing)
}

// healthz says that the process works.
func (o *Operator) healthz(_ context.Context, c *app.RequestContext) {
	c.String(http.StatusOK, "ok\n")
}

// readyz says whether a request would be answered: this instance takes streams, and the chat-service has a worker.
func (o *Operator) readyz(ctx context.Context, c *app.RequestContext) {
	if o.Hop.Live.Closed() {
		c.String(http.StatusServiceUnavailable, "draining\n")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := o.Health.Check(ctx, &healthpb.HealthCheckRequest{Service: chatv1.Chat_ServiceDesc.ServiceName})
	switch {
	case err != nil:
		c.String(http.StatusServiceUnavailable, "%s cannot be reached: %v\n", exchange.ChatService, err)
	case resp.GetStatus() != healthpb.HealthCheckResponse_SERVING:
		c.String(http.StatusServiceUnavailable, "%s is %s\n", exchange.ChatService, resp.GetStatus())
	default:
		c.String(http.StatusOK, "ok\n")
	}
}
