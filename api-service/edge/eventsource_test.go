package edge_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/pkg/stream"
)

// TestEventSourceReconnectsAfterATemporaryRefusal: a browser's EventSource gives up for good after
// any status but 200.
func TestEventSourceReconnectsAfterATemporaryRefusal(t *testing.T) {
	t.Parallel()
	url, _ := start(t, func(c *edge.Config) {
		c.Redis, c.TokenKey = "redis://127.0.0.1:1/0", "for tests" // no server listens there
	})
	events := url + "/v1/streams/" + stream.NewID() + "/events"
	accept := []string{"Accept", "text/event-stream"}
	for name, c := range map[string]struct {
		url     string
		headers []string
		status  int
	}{
		"an EventSource":               {events + "?token=t", accept, http.StatusOK},
		"one without a token":          {events, accept, http.StatusOK},
		"a client that reads refusals": {events + "?token=t", []string{"Accept", "text/event-stream, application/json"}, http.StatusServiceUnavailable},
		"a client with a key":          {events, append([]string{"Authorization", "Bearer k"}, accept...), http.StatusServiceUnavailable},
		"one that reads JSON":          {events + "?token=t", nil, http.StatusServiceUnavailable},
		"an id that cannot be":         {url + "/v1/streams/a%20b/events?token=t", accept, http.StatusBadRequest},
	} {
		resp := ask(t, http.MethodGet, c.url, "", c.headers...)
		body := whole(t, resp)
		if resp.StatusCode != c.status {
			t.Errorf("%s gets %d %s; want %d", name, resp.StatusCode, body, c.status)
		}
		if c.status == http.StatusOK && (resp.Header.Get("Content-Type") != "text/event-stream" || !strings.HasPrefix(body, "retry: 1000\n: unavailable: ") || !strings.HasSuffix(body, "\n\n")) {
			t.Errorf("%s gets %s %q", name, resp.Header, body)
		}
	}
}
