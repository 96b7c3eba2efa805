package overhttp

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/endlesstest"
)

// TestEndlessAnswersOfServersAreBounded: whatever part of an answer never ends, the request fails,
// and the memory that it takes is bounded. An answer that only keeps the connection busy ends with
// its caller.
func TestEndlessAnswersOfServersAreBounded(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	for name, answer := range endlesstest.Answers {
		server := httptest.NewServer(answer)
		c := New(server.URL, "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		for what, call := range map[string]func() error{
			"a GET": func() error {
				var into map[string]any
				return c.Get(ctx, "/", &into)
			},
			"the metrics": func() error { _, err := c.Load(ctx, VLLMMetrics); return err },
		} {
			if got := endlesstest.Allocated(t, func() {
				if call() == nil {
					t.Errorf("%s as the answer to %s: no error", name, what)
				}
			}); got > 16*maxMetrics {
				t.Errorf("%s as the answer to %s: %d bytes were allocated", name, what, got)
			}
		}
		cancel()
		server.Close()
	}
}
