package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestClientsAreNotToldTheWordsOfLibraries: the text of an unclassified error stays in the log.
// The answer has the form of each API.
func TestClientsAreNotToldTheWordsOfLibraries(t *testing.T) {
	_, parsing := time.Parse(time.RFC3339Nano, "")
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/responses", "/generate", "/api/chat"} {
		for _, err := range []error{parsing, fmt.Errorf("head: %w", parsing), errors.New("dial tcp 10.0.0.7:6379: connection refused")} {
			log := new(logtest.Log)
			desk := exchange.Desk{Name: "api-service", Log: slog.New(slog.NewTextHandler(log, nil))}
			c := app.NewContext(0)
			c.Request.SetRequestURI("http://localhost" + path)
			c.SetHandlers(app.HandlersChain{func(_ context.Context, c *app.RequestContext) { desk.Refuse(c, err) }})
			c.Next(t.Context())
			body := string(c.Response.Body())
			if c.Response.StatusCode() != 500 || !strings.Contains(body, "the log of api-service says more") || strings.Contains(body, "parsing") || strings.Contains(body, "10.0.0.7") {
				t.Errorf("%s: a client is told %d %s", path, c.Response.StatusCode(), body)
			}
			if !strings.Contains(log.String(), "parsing time") && !strings.Contains(log.String(), "10.0.0.7") {
				t.Errorf("%s: the log has %s", path, log)
			}
		}
		desk := exchange.Desk{Name: "api-service", Log: slog.New(slog.DiscardHandler)}
		c := app.NewContext(0)
		c.Request.SetRequestURI("http://localhost" + path)
		desk.Refuse(c, streamerr.New(streamerr.Internal, "in words of ours"))
		if body := string(c.Response.Body()); !strings.Contains(body, "in words of ours") {
			t.Errorf("%s: a client is told %s", path, body)
		}
	}
}
