package rpc_test

import (
	"context"
	"io"
	"iter"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// plain is a method whose streams end with the call, so that a benchmark measures only items.
var plain = &rpc.Method[*workerv1.TokenRequest, workerv1.GenerateRequest, workerv1.GenerateResponse]{
	Open: methods.Worker.Open, Opened: methods.Worker.Opened, Stop: methods.Worker.Stop,
	Stopped: func(*workerv1.GenerateRequest) (*streamv1.Stop, bool) { return nil, false },
	Tokens:  func(*workerv1.GenerateResponse) int { return 1 },
	End:     func(*workerv1.GenerateResponse) *streamerr.Ending { return nil },
}

// freeServer is the callee's end of a call whose messages cost nothing.
type freeServer struct {
	grpc.ServerStream
	ctx    context.Context //nolint:containedctx // a call has one
	opened bool
}

func (s *freeServer) Context() context.Context              { return s.ctx }
func (s *freeServer) SetTrailer(metadata.MD)                {}
func (s *freeServer) Send(*workerv1.GenerateResponse) error { return nil }
func (s *freeServer) Recv() (*workerv1.GenerateRequest, error) {
	if s.opened {
		return nil, io.EOF
	}
	s.opened = true
	return plain.Open(&workerv1.TokenRequest{}), nil
}

// freeClient is the caller's end of a call whose messages cost nothing.
type freeClient struct {
	grpc.ClientStream
	left int
	item *workerv1.GenerateResponse
}

func (c *freeClient) Send(*workerv1.GenerateRequest) error { return nil }
func (c *freeClient) CloseSend() error                     { return nil }
func (c *freeClient) Trailer() metadata.MD                 { return nil }
func (c *freeClient) Recv() (*workerv1.GenerateResponse, error) {
	if c.left == 0 {
		return nil, io.EOF
	}
	c.left--
	return c.item, nil
}

func oneToken() *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{1}}}}
}

// passes has functions that pass n items through our own code, and nothing else.
var passes = map[string]func(t testing.TB, n int){"serve": serveItems, "dial": dialItems, "in process": passInProcess}

// BenchmarkItem measures the overhead of our own code per item.
func BenchmarkItem(b *testing.B) {
	for name, pass := range passes {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			pass(b, b.N)
		})
	}
}

// TestItemsAllocateNothing: our own code allocates nothing per item, on either end of a call.
func TestItemsAllocateNothing(t *testing.T) {
	for name, pass := range passes {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const n = 50_000
		pass(t, n)
		runtime.ReadMemStats(&after)
		if allocs := after.Mallocs - before.Mallocs; allocs > n/10 {
			t.Errorf("%s: %d allocations for %d items", name, allocs, n)
		}
	}
}

// serveItems serves a stream of n items.
func serveItems(t testing.TB, n int) {
	svc, item := newService("worker", nil), oneToken()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_ = rpc.Serve(svc.hop, &freeServer{ctx: ctx}, plain, stream.Push(func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for range n {
				if !yield(item, nil) {
					return
				}
			}
		}
	}))
}

// dialItems receives a stream of n items.
func dialItems(t testing.TB, n int) {
	open := func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse], error) {
		return &freeClient{left: n, item: oneToken()}, nil
	}
	for range rpc.Dial("self", "peer", open, plain).Range(t.Context(), &workerv1.TokenRequest{}) {
	}
}

// plainService serves Generate with a plain method.
type plainService struct {
	workerv1.UnimplementedWorkerServer
	hop    *rpc.Hop
	engine engine
}

func (s *plainService) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	return rpc.Serve(s.hop, st, plain, s.engine)
}

// passInProcess passes n items between two hops of one process, both with ledgers.
func passInProcess(t testing.TB, n int) {
	item := oneToken()
	svc := &plainService{hop: newService("worker", nil).hop, engine: stream.Push(func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for range n {
				if !yield(item, nil) {
					return
				}
			}
		}
	})}
	caller := newService("caller", nil).hop
	path := rpc.Dial("caller", "worker", workerv1.NewWorkerClient(dialHere(t, serveHere(t, svc))).Generate, plain)
	id := ""
	ctx, end, err := caller.Begin(t.Context(), &id, "", "", func() *streamerr.Error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	rpc.Drive(ctx, caller, plain, path, &workerv1.TokenRequest{}, func(*workerv1.GenerateResponse) error { return nil })
}

// BenchmarkStream measures the cost of an item across one process boundary, per transport.
func BenchmarkStream(b *testing.B) {
	flood := func(_ context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for i := range req.GetPrompt()[0] {
				if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{i}}}}, nil) {
					return
				}
			}
			yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
		}
	}
	for _, tr := range transports {
		b.Run(tr.name, func(b *testing.B) {
			e := engineAt(tr.dial(b, tr.serve(b, newService("worker", stream.Push(flood)))), "caller", "worker")
			b.ReportAllocs()
			b.ResetTimer()
			for _, err := range e.Range(b.Context(), ask(uint32(b.N))()) {
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
