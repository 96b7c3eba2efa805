package bench_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"github.com/whence-dev/whence/pkg/streamtrace"
)

// BenchmarkTrace is what traces add to the CPU that a token costs, as BenchmarkMetrics is for metrics. One of them exports
// one stream in a hundred, the other each of them, by OTLP to a server in this process that throws them away.
func BenchmarkTrace(b *testing.B) {
	b.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20") // milliseconds: what is exported five seconds later would not be measured
	up := upstream(b, 0).Generate
	for name, ratio := range map[string]float64{"ratio=1%": 0.01, "ratio=100%": 1} {
		b.Run(name, func(b *testing.B) {
			sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			defer sink.Close()
			compare(b, func() float64 { return cost(b, up, nil, nil) }, func() float64 {
				exporter, err := otlptracehttp.New(b.Context(), otlptracehttp.WithEndpoint(sink.Listener.Addr().String()), otlptracehttp.WithInsecure())
				if err != nil {
					b.Fatal(err)
				}
				t := &streamtrace.Tracer{Messages: streamtrace.DefaultMessages, Ratio: ratio}
				end := t.Export("bench", exporter)
				defer func() {
					if err := end(context.Background()); err != nil {
						b.Error(err)
					}
				}()
				return cost(b, up, nil, t)
			})
		})
	}
}
