package server

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/rpc"
)

// A caller is the server's end of a call whose caller reads everything immediately.
type caller struct {
	grpc.ServerStream
	ctx   context.Context //nolint:containedctx // of the call, as in gRPC
	asked *chatv1.GenerateRequest
	got   int // tokens
	end   *llmv1.End
}

// Context implements grpc.ServerStream.
func (c *caller) Context() context.Context { return c.ctx }

// Recv implements grpc.BidiStreamingServer: the request, then half-close.
func (c *caller) Recv() (*chatv1.GenerateRequest, error) {
	if asked := c.asked; asked != nil {
		c.asked = nil
		return asked, nil
	}
	return nil, io.EOF
}

// Send implements grpc.BidiStreamingServer.
func (c *caller) Send(out *chatv1.GenerateResponse) error {
	c.got += int(out.GetDelta().GetTokens())
	if end := out.GetEnd(); end != nil {
		c.end = end
	}
	return nil
}

// SetTrailer implements grpc.ServerStream.
func (c *caller) SetTrailer(metadata.MD) {}

// newPipeline returns a chat-service over one worker that answers with this many tokens: route,
// chat, postprocess and server, with a fake call of the worker. sent, which may be nil, is called
// when the n-th token has been taken.
func newPipeline(t testing.TB, tokens int, sent func(n int)) *Server {
	t.Helper()
	m, err := chat.Load(whencetiny.FS(), whencetiny.Name, whencetiny.Owner)
	if err != nil {
		t.Fatal(err)
	}
	m.ContextLength = 1 << 30
	message := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: m.Tokenizer.Encode(" the", false)[:1]}}}
	w := fleet.Pretended("w/0", func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{}}}, nil) {
				return
			}
			for n := range tokens {
				if !yield(message, nil) {
					return
				}
				if sent != nil {
					sent(n + 1)
				}
			}
			yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
				Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_LENGTH, Usage: &llmv1.Usage{CompletionTokens: uint32(tokens)},
			}}}, nil)
		}
	})
	w.Say(&llmv1.WorkerInfo{Instance: "w/0", ContextLength: 1 << 30, Continues: true})
	pool := route.New(route.Options{Self: "chat-service", Log: slog.New(slog.DiscardHandler), Migrations: 3, MigrateAfter: time.Minute, FirstTokenMove: time.Minute})
	pool.Pretend(w)
	return New(&rpc.Hop{Name: "chat-service", Log: slog.New(slog.DiscardHandler)}, nil, nil, chat.New(m, pool.Start))
}

func newCaller(ctx context.Context, choices uint32) *caller {
	return &caller{ctx: ctx, asked: &chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Chat{Chat: &chatv1.ChatRequest{
		Model: whencetiny.Name, N: choices, Messages: []*chatv1.Message{{Role: "user", Content: "Hi"}},
	}}}}
}

// readAll sends one request with several choices and reads the answer.
func (s *Server) readAll(ctx context.Context, choices uint32) (*caller, error) {
	c := newCaller(ctx, choices)
	return c, s.Generate(c)
}

// A cost is what the process has spent.
type cost struct{ allocs, wakes uint64 }

// spent returns the total cost so far. The runtime samples one in eight of the goroutines that
// become runnable.
func spent() cost {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	latencies := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(latencies)
	wakes := uint64(0)
	for _, n := range latencies[0].Value.Float64Histogram().Counts {
		wakes += n
	}
	return cost{mem.Mallocs, 8 * wakes}
}

// TestTokenCostsOneAllocation checks the cost of a token in chat-service, from the worker's call to
// the caller's Send: one allocation, for its message.
func TestTokenCostsOneAllocation(t *testing.T) {
	const tokens = 20000
	for _, n := range []uint32{1, 3} {
		t.Run(fmt.Sprint(n, " choices"), func(t *testing.T) {
			s := newPipeline(t, tokens, nil)
			before := spent()
			c, err := s.readAll(t.Context(), n)
			after := spent()
			total := float64(n * tokens)
			if err != nil || c.got != int(total) || c.end == nil {
				t.Fatal(err, c.got, c.end)
			}
			if allocs := float64(after.allocs-before.allocs) / total; allocs > 1.1 {
				t.Errorf("a token costs %.2f allocations, want 1", allocs)
			}
		})
	}
}

// The goroutine that receives a token carries it to the caller's Send.
func TestTokenIsSentBeforeTheNextIsReceived(t *testing.T) {
	c := newCaller(t.Context(), 1)
	s := newPipeline(t, 1000, func(n int) {
		if c.got != n {
			t.Fatalf("%d of %d tokens are sent when the next is received", c.got, n)
		}
	})
	if err := s.Generate(c); err != nil || c.got != 1000 {
		t.Error(err, c.got)
	}
}

// BenchmarkToken measures the cost of a token in chat-service.
func BenchmarkToken(b *testing.B) {
	for _, n := range []uint32{1, 4} {
		b.Run(fmt.Sprint(n, " choices"), func(b *testing.B) {
			s := newPipeline(b, max(1, b.N/int(n)), nil)
			before := spent()
			b.ReportAllocs()
			b.ResetTimer()
			if _, err := s.readAll(b.Context(), n); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(spent().wakes-before.wakes)/float64(b.N), "wakes/token")
		})
	}
}
