package e2e

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whence-dev/whence/chat-service/route"
	"github.com/whence-dev/whence/chat-service/route/policy"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// workerInProcess serves the embedded model until the test is over, and returns its address.
func workerInProcess(t *testing.T, name string, weights *tinyllama.Weights, change func(worker.Engine) worker.Engine) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	model := tinyllama.New(weights, tinyllama.Options{Threads: 1})
	loop := batch.New(model, batch.Options{Model: whencetiny.Name})
	info := func() *llmv1.WorkerInfo {
		return &llmv1.WorkerInfo{ContextLength: uint32(model.ContextLength()), VocabSize: uint32(model.VocabSize()), Continues: true, Load: loop.Load()}
	}
	s := worker.NewServer(name, whencetiny.Name, change(loop.Generate), info, slog.New(slog.DiscardHandler))
	s.SetHealthy(true)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { loop.Run(ctx) })
	running.Go(func() {
		if err := s.Serve(ctx, ln, 0); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return ln.Addr().String()
}

// TestStreamMovedAtAnyTokenEqualsTheUndisturbedOne cuts an answer of the embedded engine after each
// of its tokens. Killing a process is not precise enough for that, so the services run in this
// process, with real sockets between them.
func TestStreamMovedAtAnyTokenEqualsTheUndisturbedOne(t *testing.T) {
	t.Parallel()
	weights, err := tinyllama.Load(whencetiny.FS(), tinyllama.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var loss loss
	first := workerInProcess(t, workerName(0), weights, loss.of)
	second := workerInProcess(t, workerName(1), weights, func(next worker.Engine) worker.Engine { return next })

	const tokens = 40
	prompt := []uint32{1534, 282, 17, 94, 300, 41, 7}
	for name, sampling := range map[string]*llmv1.Sampling{
		"greedy":    {Temperature: new(float32(0))},
		"seeded":    {Seed: new(uint64(3)), TopP: new(float32(0.95))},
		"penalised": {Seed: new(uint64(3)), RepetitionPenalty: new(float32(1.2)), FrequencyPenalty: new(float32(0.6)), PresencePenalty: new(float32(0.2))},
	} {
		sampling.MaxTokens, sampling.IgnoreEos, sampling.Logprobs = new(uint32(tokens)), true, new(uint32(1))
		read := func(at int) (ids []uint32, likely []float32, end *llmv1.End) {
			loss.after.Store(int64(at))
			pool, leave := watched(t, first, second) // a new pool: a shared pool would have ejected a worker that loses all streams
			defer leave()
			for out, err := range pool.Generate(t.Context(), &workerv1.TokenRequest{Model: whencetiny.Name, Prompt: prompt, Sampling: sampling}) {
				if err != nil {
					t.Fatalf("%s, cut after %d tokens: %v", name, at, err)
				}
				ids = append(ids, out.GetTokens().GetIds()...)
				likely = append(append(likely, out.GetTokens().GetLogprobs()...), out.GetTokens().GetTopLogprobs()...)
				end = out.GetEnd()
			}
			slices.Sort(likely) // independent of the boundaries of items
			return ids, likely, end
		}
		want, wantLikely, _ := read(tokens + 1)
		if len(want) != tokens || len(wantLikely) != 2*tokens {
			t.Fatalf("%s: %d tokens, %d numbers", name, len(want), len(wantLikely))
		}
		for at := range tokens + 1 {
			before := loss.count.Load()
			ids, likely, end := read(at)
			if loss.count.Load() == before {
				t.Errorf("%s: the answer was not cut after %d tokens", name, at)
			}
			if !slices.Equal(ids, want) || !slices.Equal(likely, wantLikely) || end.GetUsage().GetPromptTokens() != uint32(len(prompt)) || end.GetUsage().GetCompletionTokens() != tokens {
				t.Errorf("%s, cut after %d tokens: %v, %v; want %v", name, at, ids, end, want)
			}
		}
	}
}

// A loss ends the streams of an engine with DRAINING.
type loss struct {
	after atomic.Int64 // number of tokens before the loss
	count atomic.Int64 // streams lost so far
}

func (l *loss) of(next worker.Engine) worker.Engine {
	return func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			left := int(l.after.Load())
			for out, err := range next(ctx, req) {
				ids := out.GetTokens().GetIds()
				keep := ids[:min(left, len(ids))]
				left -= len(keep)
				if lost := len(keep) < len(ids) || out.GetEnd() != nil && left == 0; lost {
					l.count.Add(1)
					if len(keep) > 0 {
						m, each := out.GetTokens(), len(out.GetTokens().GetTopIds())/len(ids)
						m.Ids, m.Logprobs, m.TopIds, m.TopLogprobs = keep, m.Logprobs[:len(keep)], m.TopIds[:each*len(keep)], m.TopLogprobs[:each*len(keep)]
						if !yield(out, nil) {
							return
						}
					}
					yield(nil, streamerr.New(streamerr.Draining, "lost on purpose"))
					return
				}
				if !yield(out, err) {
					return
				}
			}
		}
	}
}

// watched returns a pool of two healthy workers, the first of which is chosen, and a function that
// ends the pool.
func watched(t *testing.T, workers ...string) (pool *route.Pool, leave func()) {
	t.Helper()
	pool = route.New(route.Options{
		Self: chatService, Migrations: 1, MigrateAfter: time.Minute, Log: slog.New(slog.DiscardHandler),
		Check: func(*llmv1.WorkerInfo) error { return nil },
		Policy: func(_ policy.Request, candidates []policy.Candidate) int {
			return max(0, slices.IndexFunc(candidates, func(c policy.Candidate) bool { return c.Name == workerName(0) }))
		},
	})
	if err := pool.Set(workers...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { pool.Watch(ctx, func(bool) {}) })
	polltest.Eventually(t, fmt.Sprint(len(workers), " workers are healthy"), func() bool {
		healthy, known := pool.Count()
		return healthy == known
	})
	return pool, func() {
		cancel()
		watching.Wait()
		pool.Close()
	}
}
