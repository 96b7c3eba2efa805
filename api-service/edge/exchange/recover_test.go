package exchange_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestAPanicIsAnsweredWithTheID(t *testing.T) {
	for name, handler := range map[string]func(c *app.RequestContext){
		"before the id is set": func(*app.RequestContext) { panic("oops") },
		"after": func(c *app.RequestContext) {
			exchange.ID(c)
			c.Header("Location", "/nowhere")
			panic("oops")
		},
		"after an id of the handler": func(c *app.RequestContext) {
			c.Header(exchange.IDHeader, "mine")
			panic("oops")
		},
	} {
		desk := exchange.Desk{Name: "api-service", Log: slog.New(slog.DiscardHandler)}
		c := app.NewContext(0)
		c.Request.SetRequestURI("http://localhost/v1/messages")
		if name != "after an id of the handler" {
			c.Request.Header.Set(exchange.IDHeader, "mine")
		}
		c.SetHandlers(app.HandlersChain{desk.Recover, func(_ context.Context, c *app.RequestContext) { handler(c) }})
		c.Next(t.Context())
		var body struct {
			ID string `json:"request_id"`
		}
		if err := json.Unmarshal(c.Response.Body(), &body); err != nil {
			t.Fatal(err)
		}
		h := &c.Response.Header
		if c.Response.StatusCode() != http.StatusInternalServerError || body.ID != "mine" ||
			string(h.Peek(exchange.IDHeader)) != "mine" || string(h.Peek("request-id")) != "mine" || len(h.Peek("Location")) > 0 {
			t.Errorf("%s: %s%s", name, h.Header(), c.Response.Body())
		}
	}
}
