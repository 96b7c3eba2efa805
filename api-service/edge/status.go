package edge

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// askTimeout bounds the calls that are no streams.
const askTimeout = 2 * time.Second

func (e *Edge) askModels(ctx context.Context) ([]*chatv1.Model, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := e.client.Models(ctx, &chatv1.ModelsRequest{})
	if err != nil {
		return nil, streamerr.FromGRPC(chatHop, err)
	}
	return resp.GetModels(), nil
}

// models is GET /v1/models.
func (e *Edge) models(ctx context.Context, c *app.RequestContext) {
	requestID(c)
	models, err := e.askModels(ctx)
	if err != nil {
		e.refuse(c, statusOf(err), err)
		return
	}
	c.Data(http.StatusOK, "application/json", openai.Models(models))
}

// model is GET /v1/models/{id}; ids may have slashes.
func (e *Edge) model(ctx context.Context, c *app.RequestContext) {
	requestID(c)
	models, err := e.askModels(ctx)
	if err != nil {
		e.refuse(c, statusOf(err), err)
		return
	}
	id := strings.TrimPrefix(c.Param("id"), "/")
	for _, m := range models {
		if m.GetId() == id {
			c.Data(http.StatusOK, "application/json", openai.Model(m))
			return
		}
	}
	missing := streamerr.New(streamerr.NotFound, "the model %q does not exist", id)
	missing.Param = "model"
	e.refuse(c, http.StatusNotFound, missing)
}

// healthz says that the process works.
func (e *Edge) healthz(_ context.Context, c *app.RequestContext) {
	c.String(http.StatusOK, "ok\n")
}

// readyz says whether a request would be answered: this instance takes streams, and the chat-service has a worker.
func (e *Edge) readyz(ctx context.Context, c *app.RequestContext) {
	if e.hop.Live.Closed() {
		c.String(http.StatusServiceUnavailable, "draining\n")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := e.health.Check(ctx, &healthpb.HealthCheckRequest{Service: chatv1.Chat_ServiceDesc.ServiceName})
	switch {
	case err != nil:
		c.String(http.StatusServiceUnavailable, "%s cannot be reached: %v\n", chatHop, err)
	case resp.GetStatus() != healthpb.HealthCheckResponse_SERVING:
		c.String(http.StatusServiceUnavailable, "%s is %s\n", chatHop, resp.GetStatus())
	default:
		c.String(http.StatusOK, "ok\n")
	}
}
