package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// BenchmarkStop is how long after its client has closed the connection the engine of a stream has stopped: over the edge and
// two gRPC hops, each with its log and ledger. One op is one stop, among so many streams that go on. "streaming" has 50 tokens
// a second under way on every stream, "idle" none at all, so that nothing but the stop itself can wake anybody.
func BenchmarkStop(b *testing.B) {
	for name, gap := range map[string]time.Duration{"streaming": 20 * time.Millisecond, "idle": time.Hour} {
		for _, streams := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/streams=%d", name, streams), func(b *testing.B) { stops(b, gap, streams) })
		}
	}
}

// A stopwatch is an engine that notes when each of its streams was stopped.
type stopwatch struct {
	bench.Upstream
	stopped sync.Map // stream id to time.Time
}

func (s *stopwatch) generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		id := stream.ID(ctx)
		s.Generate(ctx, req)(yield)
		if errors.Is(stream.Cause(ctx), streamerr.ClientGone) {
			s.stopped.Store(id, time.Now())
		}
	}
}

func stops(b *testing.B, gap time.Duration, streams int) {
	b.Helper()
	engine := &stopwatch{Upstream: *upstream(b, gap)}
	p, err := bench.Start(engine.generate)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Stop()
	crowd, leave := context.WithCancel(b.Context())
	defer leave()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer leave()
	for range streams - 1 {
		wg.Go(func() {
			for crowd.Err() == nil {
				_, _ = p.Stream(crowd, 900) // ended by its length or by the benchmark
			}
		})
	}
	var took []time.Duration
	b.ResetTimer()
	for i := range b.N {
		d, err := stop(b.Context(), p, engine, fmt.Sprintf("stop-%d", i))
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, d)
	}
	b.StopTimer()
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	for name, q := range map[string]int{"p50": 50, "p90": 90, "p99": 99} {
		b.ReportMetric(float64(took[(len(took)-1)*q/100].Microseconds())/1000, name+"-ms")
	}
}

// stop opens a stream, closes its connection, and returns when the engine had stopped.
func stop(ctx context.Context, p *bench.Path, engine *stopwatch, id string) (time.Duration, error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Edge+"/v1/chat/completions",
		strings.NewReader(`{"model":"whence-tiny","stream":true,"max_tokens":900,"messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil { // the role: the stream runs
		return 0, err
	}
	time.Sleep(50 * time.Millisecond) // into the stream
	begun := time.Now()
	leave()
	_ = resp.Body.Close()
	for time.Since(begun) < 10*time.Second {
		if at, ok := engine.stopped.Load(id); ok {
			return max(0, at.(time.Time).Sub(begun)), nil
		}
		time.Sleep(time.Millisecond)
	}
	return 0, fmt.Errorf("%s was not stopped in ten seconds", id)
}
