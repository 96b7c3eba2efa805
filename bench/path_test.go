package bench_test

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench"
	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/worker"
)

// tokensPerStream is the length of each answer.
const tokensPerStream = 500

func upstream(b *testing.B, gap time.Duration) *bench.Upstream {
	b.Helper()
	m, err := chat.Load(whencetiny.FS(), whencetiny.Name, whencetiny.Owner)
	if err != nil {
		b.Fatal(err)
	}
	return &bench.Upstream{IDs: m.Tokenizer.Encode("Once upon a time, there was a small fox in the harbor. ", false), Gap: gap}
}

// BenchmarkPath measures an answer of 500 tokens over the whole path, client included: engine, two
// gRPC hops, SSE. One op is one token. The engine of "flat out" costs nothing, the engine of
// "paced" generates 50 tokens per second and stream, and "embedded" is the embedded model.
func BenchmarkPath(b *testing.B) {
	for name, engine := range map[string]func(*testing.B) worker.Engine{
		"flat out": func(b *testing.B) worker.Engine { return upstream(b, 0).Generate },
		"paced":    func(b *testing.B) worker.Engine { return upstream(b, 20*time.Millisecond).Generate },
		"embedded": func(*testing.B) worker.Engine { return nil },
	} {
		for _, streams := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/streams=%d", name, streams), func(b *testing.B) { path(b, engine(b), streams) })
		}
	}
}

func path(b *testing.B, engine worker.Engine, streams int) {
	b.Helper()
	p, err := bench.Start(engine)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Stop()
	var mu sync.Mutex
	var ttft []time.Duration
	var tokens, events int
	b.ReportAllocs()
	b.ResetTimer()
	begun, cpu := time.Now(), cpuTime()
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			for left := max(1, b.N/streams); left > 0; left -= tokensPerStream {
				n := min(left, tokensPerStream)
				r, err := p.Stream(b.Context(), n)
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				ttft = append(ttft, r.TTFT)
				tokens += n
				events += r.Events
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	if len(ttft) == 0 || tokens == 0 {
		return
	}
	slices.Sort(ttft)
	b.ReportMetric(float64(tokens)/time.Since(begun).Seconds(), "tokens/s")
	b.ReportMetric(float64(cpuTime()-cpu)/float64(time.Microsecond)/float64(tokens), "cpu-µs/token")
	b.ReportMetric(float64(tokens)/float64(max(1, events)), "tokens/event")
	b.ReportMetric(float64(ttft[len(ttft)/2])/float64(time.Millisecond), "ttft-p50-ms")
	b.ReportMetric(float64(ttft[len(ttft)*99/100])/float64(time.Millisecond), "ttft-p99-ms")
}

// cpuTime returns the CPU time of this process: services and client together.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
