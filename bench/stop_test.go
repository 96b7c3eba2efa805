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
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// BenchmarkStop measures the time from a client's closing of its connection until the engine has
// stopped the stream, while other streams continue. One op is one stop. "whence" is the edge and
// two gRPC hops, each with its log and ledger; "relay" is two bare hops of grpc-go, without HTTP in
// front. "streaming" has tokens in flight on every stream, 5,000 per second in total and at most 50
// per stream; "idle" has none, so that only the stop itself wakes goroutines. late-tokens is the
// largest number of tokens that an engine generated after the close.
func BenchmarkStop(b *testing.B) {
	for _, load := range []string{"streaming", "idle"} {
		for _, streams := range []int{1, 100, 1000} {
			gap := time.Hour
			if load == "streaming" {
				gap = max(20*time.Millisecond, time.Duration(streams)*time.Second/5000)
			}
			for _, path := range []struct {
				name  string
				start func(*testing.B, time.Duration) stopTarget
			}{{"whence", startWhence}, {"relay", startBare}} {
				b.Run(fmt.Sprintf("%s/streams=%d/%s", load, streams, path.name), func(b *testing.B) {
					stops(b, path.start(b, gap), streams)
				})
			}
		}
	}
}

// A stopTarget is a path whose clients can leave.
type stopTarget interface {
	// run opens a stream and reads it until ctx is done. It calls running after the first read.
	run(ctx context.Context, id string, running func()) error
	// stopped returns the engine's record of a stopped stream.
	stopped(id string) (*run, bool)
}

// A run is the engine's record of a stream.
type run struct {
	tokens  [8]time.Time // the last ones
	n       int
	stopped time.Time
}

func (r *run) token() {
	r.tokens[r.n%len(r.tokens)] = time.Now()
	r.n++
}

// late returns the number of tokens after at.
func (r *run) late(at time.Time) int {
	n := 0
	for _, t := range r.tokens {
		if t.After(at) {
			n++
		}
	}
	return n
}

func stops(b *testing.B, p stopTarget, streams int) {
	b.Helper()
	crowd, disperse := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer disperse()
	var there sync.WaitGroup
	for i := range streams - 1 {
		there.Add(1)
		wg.Go(func() {
			arrived := sync.OnceFunc(there.Done)
			for n := 0; crowd.Err() == nil; n++ { // restart a stream whose answer has ended
				if err := p.run(crowd, fmt.Sprintf("crowd-%d-%d", i, n), arrived); err != nil && crowd.Err() == nil {
					b.Error(err)
					arrived()
					return
				}
			}
		})
	}
	there.Wait()
	var took []time.Duration
	late := 0
	b.ResetTimer()
	for i := range b.N {
		d, n, err := stop(b.Context(), p, fmt.Sprintf("stop-%d", i))
		if err != nil {
			b.Fatal(err)
		}
		took, late = append(took, d), max(late, n)
	}
	b.StopTimer()
	slices.Sort(took)
	for name, q := range map[string]int{"p50": 50, "p90": 90, "p99": 99} {
		b.ReportMetric(float64(took[(len(took)-1)*q/100].Microseconds())/1000, name+"-ms")
	}
	b.ReportMetric(float64(late), "late-tokens")
}

// stop opens a stream, leaves it, and returns the time until the engine stopped.
func stop(ctx context.Context, p stopTarget, id string) (took time.Duration, late int, err error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	running, left := make(chan struct{}), make(chan error, 1)
	go func() { left <- p.run(ctx, id, sync.OnceFunc(func() { close(running) })) }()
	select {
	case <-running:
	case err := <-left:
		return 0, 0, fmt.Errorf("%s did not run: %w", id, err)
	}
	lab.Pause(ctx, 30*time.Millisecond) // leave in mid-stream
	begun := time.Now()
	leave()
	<-left
	for time.Since(begun) < lab.Patience {
		if r, ok := p.stopped(id); ok {
			return max(0, r.stopped.Sub(begun)), r.late(begun), nil
		}
		lab.Pause(context.Background(), time.Millisecond)
	}
	return 0, 0, fmt.Errorf("%s was not stopped in %v", id, lab.Patience)
}

// A whence is the whole path, over an engine that records when its streams are stopped.
type whence struct {
	*bench.Path
	bench.Upstream
	transport http.Transport
	runs      sync.Map // stream id to *run
}

func startWhence(b *testing.B, gap time.Duration) stopTarget {
	b.Helper()
	w := &whence{Upstream: *upstream(b, gap), transport: http.Transport{MaxIdleConnsPerHost: 2000}}
	p, err := bench.Start(w.generate)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Stop)
	b.Cleanup(w.transport.CloseIdleConnections)
	w.Path = p
	return w
}

func (w *whence) generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		r := &run{}
		w.Generate(ctx, req)(func(out *workerv1.GenerateResponse, err error) bool {
			r.token()
			return yield(out, err)
		})
		if errors.Is(stream.Cause(ctx), streamerr.ClientGone) {
			r.stopped = time.Now()
			r.tokens[(r.n-1)%len(r.tokens)] = time.Time{} // the last yield was the ending, not a token
			w.runs.Store(stream.ID(ctx), r)
		}
	}
}

func (w *whence) stopped(id string) (*run, bool) {
	r, ok := w.runs.Load(id)
	if !ok {
		return nil, false
	}
	return r.(*run), true
}

func (w *whence) run(ctx context.Context, id string, running func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.Edge+"/v1/chat/completions",
		strings.NewReader(`{"model":"whence-tiny","stream":true,"max_tokens":900,"messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	resp, err := w.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // leaves in mid-stream
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", id, resp.Status)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil { // the role: the stream runs
		return err
	}
	running()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func startBare(b *testing.B, gap time.Duration) stopTarget {
	b.Helper()
	return startRelay(b, gap)
}

func (r *relay) stopped(id string) (*run, bool) {
	found, ok := r.leaf.stopped.Load(id)
	if !ok {
		return nil, false
	}
	return found.(*run), true
}

func (r *relay) run(ctx context.Context, id string, running func()) error {
	read, err := r.open(ctx, id)
	for running(); err == nil; {
		err = read()
	}
	return err
}
