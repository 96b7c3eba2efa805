package otlp_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/whence-dev/whence/internal/endlesstest"
	"github.com/whence-dev/whence/internal/otlp"
)

// TestEndlessAnswersOfCollectorsAreBounded: a push fails, or ends with its time, and takes bounded
// memory. net/http reads at most 10 MiB of a header. As interim answers of 34 bytes they cost most:
// 140 MB of short-lived objects.
func TestEndlessAnswersOfCollectorsAreBounded(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	for name, answer := range endlesstest.Answers {
		server := httptest.NewServer(answer)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		spans, err := otlp.Collector(server.URL).Spans(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := endlesstest.Allocated(t, func() {
			_ = spans.ExportSpans(ctx, tracetest.SpanStubs{{Name: "a"}}.Snapshots()) // the answer to a push that has arrived may be ignored
		}); got > 512<<20 {
			t.Errorf("%s: the push allocated %d bytes", name, got)
		} else {
			t.Logf("%s: %d KiB", name, got>>10)
		}
		cancel()
		_ = spans.Shutdown(t.Context())
		server.Close()
	}
}
