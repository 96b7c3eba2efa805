package bench_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// BenchmarkMetrics is what metrics add to the CPU that a token costs, over an engine that costs nothing, client included. One
// op is a path without and one with metrics, one after the other, of 64 streams of 500 tokens each. Every op has paths of its
// own: two that are alike differ by up to a tenth, by how their connections happen to share threads, for as long as they
// live. So it takes some hundred ops to see one per cent.
func BenchmarkMetrics(b *testing.B) {
	up := upstream(b, 0).Generate
	compare(b, func() float64 { return cost(b, up, nil, nil) }, func() float64 {
		m, err := metrics.New("bench")
		if err != nil {
			b.Fatal(err)
		}
		defer func() {
			if err := m.Close(context.Background()); err != nil {
				b.Error(err)
			}
		}()
		return cost(b, up, m, nil)
	})
}

// compare reports how much more one costs than the other.
func compare(b *testing.B, without, with func() float64) {
	b.Helper()
	off, on := make([]float64, b.N), make([]float64, b.N)
	b.ResetTimer()
	for i := range b.N {
		for j := range 2 { // now the one first, now the other
			if i%2 == j {
				off[i] = without()
			} else {
				on[i] = with()
			}
		}
	}
	b.StopTimer()
	more := make([]float64, b.N)
	for i := range more {
		more[i] = on[i]/mean(off) - off[i]/mean(off)
	}
	b.ReportMetric(mean(off), "off-cpu-µs/token")
	b.ReportMetric(mean(on), "on-cpu-µs/token")
	b.ReportMetric(100*mean(more), "more-%")
	b.ReportMetric(100*uncertainty(more), "±%")
	b.ReportMetric(0, "ns/op")
}

// cost is the CPU of a token over a new path, in µs.
func cost(b *testing.B, engine worker.Engine, m *metrics.Metrics, t *streamtrace.Tracer) float64 {
	b.Helper()
	p, err := bench.StartWatched(engine, m, t)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Stop()
	const streams = 64
	all := func() {
		var wg sync.WaitGroup
		for range streams {
			wg.Go(func() {
				if _, err := p.Stream(b.Context(), tokensPerStream); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	all() // connections, pools and buffers
	begun := cpuTime()
	all()
	return float64(cpuTime()-begun) / float64(time.Microsecond) / (streams * tokensPerStream)
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// uncertainty is the standard error of the mean.
func uncertainty(xs []float64) float64 {
	m, squares := mean(xs), 0.0
	for _, x := range xs {
		squares += (x - m) * (x - m)
	}
	return math.Sqrt(squares / float64(len(xs)) / float64(max(1, len(xs)-1)))
}
