package bench_test

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"github.com/whence-dev/whence/bench"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// BenchmarkOverhead measures the CPU time that metrics and traces add to a token, over an engine
// without cost, client included. One op is a pair of slices, one with and one without metrics and
// traces, on the same servers and connections: 32 streams of 500 tokens each. more-% is the median
// of the ratios of the pairs, and low-% to high-% is its 95 % confidence interval, so a noisy
// machine widens the interval but does not bias the median. Fifty ops take half a minute and detect
// a difference of two per cent.
func BenchmarkOverhead(b *testing.B) {
	b.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10") // milliseconds: an export after the default of five seconds would count for another slice
	for _, c := range []struct {
		name            string
		metrics, traces bool
		ratio           float64
	}{
		{"nothing", false, false, 0}, // the noise of the measurement
		{"metrics", true, false, 0},
		{"metrics+traces=1%", true, true, 0.01},
		{"metrics+traces=100%", true, true, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			m, err := metrics.New("bench")
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := m.Close(context.Background()); err != nil {
					b.Error(err)
				}
			}()
			sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			defer sink.Close()
			exporter, err := otlptracehttp.New(b.Context(), otlptracehttp.WithEndpoint(sink.Listener.Addr().String()), otlptracehttp.WithInsecure())
			if err != nil {
				b.Fatal(err)
			}
			t := &streamtrace.Tracer{Messages: streamtrace.DefaultMessages, Ratio: c.ratio}
			end := t.Export("bench", exporter)
			defer func() {
				if err := end(context.Background()); err != nil {
					b.Error(err)
				}
			}()
			p, err := bench.StartWatched(upstream(b, 0).Generate, m, t)
			if err != nil {
				b.Fatal(err)
			}
			defer p.Stop()
			overhead(b, p, func(on bool) {
				m.Pause(!on || !c.metrics)
				t.Pause(!on || !c.traces)
			})
		})
	}
}

// overhead reports the additional cost of a token with a feature on.
func overhead(b *testing.B, p *bench.Path, set func(on bool)) {
	b.Helper()
	set(true)
	slice(b, p) // connections, pools and buffers
	ratios, off, on := make([]float64, b.N), make([]float64, b.N), make([]float64, b.N)
	b.ResetTimer()
	for i := range b.N {
		for j := range 2 { // alternate the order
			if watched := i%2 == j; watched {
				set(true)
				on[i] = slice(b, p)
			} else {
				set(false)
				off[i] = slice(b, p)
			}
		}
		ratios[i] = on[i] / off[i]
	}
	b.StopTimer()
	slices.Sort(ratios)
	slices.Sort(off)
	slices.Sort(on)
	percent := func(at int) float64 { return 100 * (ratios[min(max(at, 0), b.N-1)] - 1) }
	half := int(0.98 * math.Sqrt(float64(b.N))) // half the ranks of the 95 % confidence interval of the median: 1.96 standard deviations of a fair coin
	b.ReportMetric(off[b.N/2], "off-cpu-µs/token")
	b.ReportMetric(on[b.N/2], "on-cpu-µs/token")
	b.ReportMetric(percent(b.N/2), "more-%")
	b.ReportMetric(percent(b.N/2-half), "low-%")
	b.ReportMetric(percent(b.N/2+half), "high-%")
}

// slice returns the CPU time per token of some streams, in µs, including the work after their
// endings.
func slice(b *testing.B, p *bench.Path) float64 {
	b.Helper()
	const streams = 32
	runtime.GC() // garbage of the previous slice must not count for this slice
	begun := cpuTime()
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			if _, err := p.Stream(b.Context(), tokensPerStream); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	lab.Pause(b.Context(), 30*time.Millisecond) // spans are exported after the streams end
	return float64(cpuTime()-begun) / float64(time.Microsecond) / (streams * tokensPerStream)
}
