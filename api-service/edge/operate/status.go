package operate

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/sglang"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/descriptors"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// AskTimeout bounds the calls to chat-services outside of streams.
const AskTimeout = 2 * time.Second

func (o *Operator) askModels(ctx context.Context) ([]*chatv1.Model, error) {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
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
	exchange.JSON(c, listOf(c, models))
}

// modelInfo handles SGLang's GET /model_info, which its clients ask for before they generate. A body
// of POST /generate need not name a model either, if there is only one.
func (o *Operator) modelInfo(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	models, err := o.askModels(ctx)
	if err == nil && len(models) == 0 {
		err = streamerr.New(streamerr.NotFound, "there is no model").WithCode(streamerr.CodeModelNotFound)
	}
	if err != nil {
		o.Refuse(c, err)
		return
	}
	exchange.JSON(c, sglang.ModelInfo(models[0]))
}

// listOf returns the list of models in the form of the client's API.
func listOf(c *app.RequestContext, models []*chatv1.Model) []byte {
	if exchange.SpeaksAnthropic(c) {
		return anthropic.Models(models)
	}
	return openai.Models(models)
}

// model handles GET /v1/models/{id}; ids may contain slashes.
func (o *Operator) model(ctx context.Context, c *app.RequestContext) {
	id := strings.TrimPrefix(c.Param("id"), "/")
	if id == "" { // /v1/models/
		o.models(ctx, c)
		return
	}
	exchange.ID(c)
	m, err := o.find(ctx, id)
	if err != nil {
		o.Refuse(c, err)
		return
	}
	encode := openai.Model
	if exchange.SpeaksAnthropic(c) {
		encode = anthropic.Model
	}
	exchange.JSON(c, encode(m))
}

// find returns the model with an id or an alias, or a refusal.
func (o *Operator) find(ctx context.Context, id string) (*chatv1.Model, error) {
	models, err := o.askModels(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range models {
		if m.GetId() == id || slices.Contains(m.GetAliases(), id) {
			return m, nil
		}
	}
	missing := streamerr.New(streamerr.NotFound, "the model %.128q does not exist", id).WithCode(streamerr.CodeModelNotFound)
	missing.Param = "model"
	return nil, missing
}

// healthz reports that the process is alive.
func (o *Operator) healthz(_ context.Context, c *app.RequestContext) {
	c.String(http.StatusOK, "ok\n")
}

// version answers GET /version, as vLLM does.
func (o *Operator) version(_ context.Context, c *app.RequestContext) {
	exchange.JSON(c, fmt.Appendf(nil, `{"version":%q}`, cli.Release()))
}

// readyz reports whether a request would be answered: this instance takes streams and connections,
// and a chat-service has a worker. Some workers may be down meanwhile, so the body counts them.
func (o *Operator) readyz(ctx context.Context, c *app.RequestContext) {
	if o.Hop.Live.Closed() {
		c.String(http.StatusServiceUnavailable, "draining\n")
		return
	}
	if descriptors.Low() {
		c.String(http.StatusServiceUnavailable, "out of file descriptors\n")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	if err := o.Chats.Ready(ctx); err != nil {
		c.String(http.StatusServiceUnavailable, "%s\n", streamerr.As(err).Text())
		return
	}
	workers, err := o.Chats.Workers(ctx)
	if err != nil { // requests are answered, whatever the list says
		c.String(http.StatusOK, "ok\n")
		return
	}
	c.String(http.StatusOK, "%s", readiness(workers))
}

// shownDown is the maximum number of workers whose problems /readyz shows.
const shownDown = 10

// readiness is the body of /readyz while requests are answered: how many workers take streams, and a
// line for each worker that takes none. Anybody may read it, so it contains no addresses.
func readiness(workers []*chatv1.Worker) string {
	var b strings.Builder
	listed, down := 0, 0
	for _, w := range workers {
		if w.GetLeaving() {
			continue // removed on purpose, so it is not missed
		}
		listed++
		if w.GetState() != chatv1.WorkerState_WORKER_STATE_DOWN {
			continue
		}
		if down++; down <= shownDown {
			fmt.Fprintf(&b, "%s: %s\n", cmp.Or(w.GetInfo().GetInstance(), "a worker"), w.GetMessage())
		}
	}
	if down > shownDown {
		fmt.Fprintf(&b, "and %d more\n", down-shownDown)
	}
	if listed == 0 {
		return "ok\n"
	}
	return fmt.Sprintf("ok: %d of %d workers available\n%s", listed-down, listed, &b)
}
