package rpc_test

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

type engine = stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// A counter is an engine that yields the numbers below prompt[0], one per millisecond, then an End.
// It refuses prompt 0, panics at 13, and fails after two items at 42. causes receives the cause of
// each stop.
type counter struct{ causes chan error }

func newCounter() *counter { return &counter{causes: make(chan error, 1000)} }

func (c *counter) generate(ctx context.Context, req *workerv1.TokenRequest, to stream.Reader[*workerv1.GenerateResponse]) {
	stream.Push(c.numbers)(ctx, req, to)
}

func (c *counter) numbers(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		n := req.GetPrompt()[0]
		switch n {
		case 0:
			yield(nil, streamerr.InvalidParam("prompt", "prompt must not be 0"))
			return
		case 13:
			panic("unlucky")
		}
		stopping := stream.Stopping(ctx)
		for i := range n {
			if i > 1 {
				select {
				case <-time.After(time.Millisecond):
				case <-stopping:
					c.causes <- stream.Cause(ctx)
					yield(nil, stream.Cause(ctx))
					return
				}
			}
			if n == 42 && i == 2 {
				yield(nil, streamerr.New(streamerr.EngineFailed, "out of luck"))
				return
			}
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{i}}}}, nil) {
				if cause := stream.Cause(ctx); cause != nil { // Send may notice first that the caller has gone
					c.causes <- cause
				}
				return
			}
		}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_STOP, Path: []string{"engine"},
		}}}, nil)
	}
}

// service is a Worker that serves only Generate.
type service struct {
	workerv1.UnimplementedWorkerServer
	hop    *rpc.Hop
	engine engine
	serve  func(*rpc.Hop, grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error // nil to serve engine
}

func (s *service) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	if s.serve != nil {
		return s.serve(s.hop, st)
	}
	return rpc.Serve(s.hop, st, methods.Worker, s.engine)
}

func newService(name string, e engine) *service {
	return &service{hop: &rpc.Hop{Name: name, Log: slog.New(slog.DiscardHandler), Observer: &ledger.Ledger{}}, engine: e}
}

// patient gives the streams of s a grace that no stop of the machine uses up.
func patient(s *service) *service {
	s.hop.Grace = polltest.Patience
	return s
}

func ask(n uint32) func() *workerv1.TokenRequest {
	return func() *workerv1.TokenRequest { return &workerv1.TokenRequest{Prompt: []uint32{n}} }
}
