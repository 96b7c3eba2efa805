package paced

import (
	"context"
	"iter"
	"log/slog"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/stream"
)

// maxCalls bounds the calls that callers hold open.
const maxCalls = 1 << 16

// Worker returns the interface for Whence: a healthy worker that serves Model, one token per
// message.
func (e *Engine) Worker(log *slog.Logger) *worker.Server {
	s := worker.NewServer("llm-worker/0", Model, e.generate, func() *llmv1.WorkerInfo {
		load := e.load()
		return &llmv1.WorkerInfo{
			Engine: "paced", ContextLength: ContextLength, VocabSize: firstClock + Ticks, ModelChecksum: checksum(),
			Load: &llmv1.Load{Running: load, MaxRunning: maxCalls},
		}
	}, log)
	s.Limit(guard.Limits{PerConnection: maxCalls, Total: maxCalls})
	s.Link(0)
	s.SetHealthy(true)
	return s
}

// load returns the number of running streams.
func (e *Engine) load() uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return uint32(e.running)
}

// generate is a stream.Sequence.
func (e *Engine) generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		prompt, n := uint32(len(req.GetPrompt())), int(req.GetSampling().GetMaxTokens())
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{
			StreamId: stream.ID(ctx), Model: Model, PromptTokens: prompt,
		}}}, nil) {
			return
		}
		made, gone := 0, false
		e.run(req.GetSampling().GetSeed(), n, stream.Stopping(ctx), func(at int64) bool {
			ids := []uint32{firstClock + uint32(at%Ticks)}
			gone = !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: ids}}}, nil)
			if !gone {
				made++
			}
			return !gone
		})
		switch {
		case gone:
		case made < n:
			yield(nil, stream.Cause(ctx))
		default:
			yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
				Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_LENGTH,
				Usage: &llmv1.Usage{PromptTokens: prompt, CompletionTokens: uint32(n)},
			}}}, nil)
		}
	}
}
