// Package bench measures the whole path on its own simulated upstream: the cost of a token at each
// stage, the throughput in tokens per second, and the time to first token.
//
// Run it with scripts/bench, which compares figures of one run, because machines differ, and one
// machine differs from hour to hour.
package bench

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/chat-service/server"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// An Upstream is an engine that answers any prompt with the same max_tokens tokens, one every Gap,
// or as fast as they are read without a Gap.
type Upstream struct {
	IDs []uint32
	Gap time.Duration
}

// Generate is a stream.Sequence.
func (u *Upstream) Generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		started := &llmv1.Started{StreamId: stream.ID(ctx), Model: whencetiny.Name, PromptTokens: uint32(len(req.GetPrompt()))}
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: started}}, nil) {
			return
		}
		stopping := stream.Stopping(ctx)
		n := int(req.GetSampling().GetMaxTokens())
		for i := range n {
			if u.Gap > 0 {
				select {
				case <-time.After(u.Gap):
				case <-stopping:
					yield(nil, stream.Cause(ctx))
					return
				}
			}
			if !yield(u.token(i), nil) {
				return
			}
		}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_LENGTH,
			Usage: &llmv1.Usage{PromptTokens: uint32(len(req.GetPrompt())), CompletionTokens: uint32(n)},
		}}}, nil)
	}
}

func (u *Upstream) token(i int) *workerv1.GenerateResponse {
	at := i % len(u.IDs)
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: u.IDs[at : at+1]}}}
}

// A Path is the three services in this process, with loopback sockets between them.
type Path struct {
	Edge, Chat, Worker string // addresses

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

const contextLength = 1024 // of the embedded model, whose tokenizer the path uses

// Start runs the path. A nil engine means the embedded model.
func Start(engine worker.Engine) (*Path, error) { return StartWatched(engine, nil, nil) }

// StartWatched is Start, with metrics and traces.
func StartWatched(engine worker.Engine, m *metrics.Metrics, t *streamtrace.Tracer) (*Path, error) {
	return start(engine, m, t, false)
}

// StartLinked is StartWatched, with links between the services.
func StartLinked(engine worker.Engine, m *metrics.Metrics, t *streamtrace.Tracer) (*Path, error) {
	return start(engine, m, t, true)
}

func start(engine worker.Engine, m *metrics.Metrics, t *streamtrace.Tracer, links bool) (*Path, error) {
	edge.LogTo(io.Discard)
	log := slog.New(slog.DiscardHandler)
	var lns [3]net.Listener
	for i := range lns {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		lns[i] = ln
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Path{Edge: lns[0].Addr().String(), Chat: lns[1].Addr().String(), Worker: lns[2].Addr().String(), cancel: cancel}
	run := func(serve func() error) {
		p.wg.Go(func() {
			if err := serve(); err != nil {
				panic(fmt.Sprintf("bench: a service failed: %v", err))
			}
		})
	}
	run(func() error {
		return edge.Run(ctx, edge.Config{
			Name: edge.DefaultName, Chat: p.Chat, MaxBody: edge.DefaultMaxBody, MaxStreams: edge.DefaultMaxStreams,
			ReadTimeout: edge.DefaultReadTimeout, WriteTimeout: edge.DefaultWriteTimeout, HeadersAfter: edge.DefaultHeadersAfter, Metrics: m, Traces: t, Link: links,
		}, lns[0], log)
	})
	run(func() error {
		return server.Run(ctx, server.Config{Name: server.DefaultName, Worker: p.Worker, MaxStreams: server.DefaultMaxStreams, Metrics: m, Traces: t, Link: links}, lns[1], log)
	})
	if engine == nil {
		run(func() error {
			return worker.Run(ctx, worker.Config{Name: worker.ServeName, MaxRunning: 64, Metrics: m, Traces: t, Link: links}, lns[2], log)
		})
	} else {
		info := func() *llmv1.WorkerInfo {
			return &llmv1.WorkerInfo{ContextLength: contextLength, VocabSize: 1 << 16}
		}
		s := worker.NewServer(worker.ServeName, whencetiny.Name, engine, info, log)
		s.SetHealthy(true)
		s.Measure(m.Hop(worker.ServeName, metrics.TextCompletion))
		s.Trace(t)
		if links {
			s.Link(0)
		}
		run(func() error { return s.Serve(ctx, lns[2], 0) })
	}
	return p, p.ready()
}

// Stop ends the services.
func (p *Path) Stop() {
	p.cancel()
	p.wg.Wait()
}
