package codec_test

import (
	"context"
	"fmt"
	"iter"
	"net"
	"runtime"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/methods/codec"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
)

// A worker sends as many tokens as the prompt says, one per message, and waits.
type worker struct {
	workerv1.UnimplementedWorkerServer
}

// Generate implements workerv1.WorkerServer.
func (worker) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	st = codec.SendTokens(st)
	for {
		in, err := st.Recv()
		if err != nil {
			return err
		}
		for i := range in.GetTokens().GetPrompt()[0] {
			if err := st.Send(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{i}}}}); err != nil {
				return err
			}
		}
	}
}

// A counter is the flow of a stream. It counts the merged messages.
type counter struct {
	observer.Nobody
	merged int
}

// Note implements observer.Flow.
func (c *counter) Note(e observer.Event) {
	if e.Kind == observer.Merged {
		c.merged += e.Messages
	}
}

// TestLinkMergesTokens checks that a link passes on the tokens that have arrived as few messages,
// and a lone token at once. The stream's flow learns how many messages were merged.
func TestLinkMergesTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := bufconn.Listen(1 << 20)
		s := link.NewServer(link.Options{})
		workerv1.RegisterWorkerServer(s, worker{})
		served := make(chan error, 1)
		go func() { served <- s.Serve(ln) }()
		cc := link.NewClient("worker:1", link.Options{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return ln.DialContext(ctx) }})
		var flow counter
		ctx, cancel := context.WithCancel(observer.With(t.Context(), &flow))
		st, err := codec.Tokens(workerv1.NewWorkerClient(cc).Generate)(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(tokens uint32) {
			t.Helper()
			if err := st.Send(&workerv1.GenerateRequest{Message: &workerv1.GenerateRequest_Tokens{Tokens: &workerv1.TokenRequest{Prompt: []uint32{tokens}}}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		ask(1)
		if m, err := st.Recv(); err != nil || len(m.GetTokens().GetIds()) != 1 {
			t.Fatal(m, err)
		}
		const tokens = 100
		ask(tokens)
		messages := 0
		for next := uint32(0); next < tokens; messages++ {
			m, err := st.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range m.GetTokens().GetIds() {
				if id != next {
					t.Fatalf("token %d, want %d", id, next)
				}
				next++
			}
		}
		if messages != 2 { // of 64 and 36 tokens
			t.Errorf("%d messages", messages)
		}
		if flow.merged != tokens-messages {
			t.Errorf("%d messages were reported as merged, want %d", flow.merged, tokens-messages)
		}
		cancel()
		_ = cc.Close()
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// A flood is a worker that sends as many tokens as the prompt says, each of them the second token of
// the prompt, and the End.
type flood struct {
	workerv1.UnimplementedWorkerServer
	hop *rpc.Hop
}

// Generate implements workerv1.WorkerServer.
func (w flood) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	return rpc.Serve(w.hop, codec.SendTokens(st), methods.Worker, stream.Push(func(_ context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		token := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: req.GetPrompt()[1:]}}}
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for range req.GetPrompt()[0] {
				if !yield(token, nil) {
					return
				}
			}
			yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
		}
	}))
}

// flooded calls f with an engine that reads from a flood over a link.
func flooded(t testing.TB, f func(engine stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse])) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := link.NewServer(link.Options{})
	workerv1.RegisterWorkerServer(s, flood{hop: &rpc.Hop{Name: "worker"}})
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	cc := link.NewClient(ln.Addr().String(), link.Options{})
	defer func() {
		_ = cc.Close()
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	f(rpc.Dial("caller", "worker", codec.Tokens(workerv1.NewWorkerClient(cc).Generate), methods.Worker))
}

// A reading is a Reader that counts tokens, which must be id.
type reading struct {
	id, wrong uint32
	got       int
	ended     chan error
}

func (r *reading) Item(_ *stream.Loop, m *workerv1.GenerateResponse) bool {
	for _, other := range m.GetTokens().GetIds() {
		if other != r.id {
			r.wrong = other
			return false
		}
		r.got++
	}
	return true
}

func (r *reading) End(err error) { r.ended <- err }

// reads reads n tokens, which must be id.
func reads(ctx context.Context, engine stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse], n int, id uint32) error {
	r := &reading{id: id, wrong: id, ended: make(chan error, 1)}
	stream.Start(ctx, engine, &workerv1.TokenRequest{Prompt: []uint32{uint32(n), id}}, stream.Reader[*workerv1.GenerateResponse](r))
	switch err := <-r.ended; {
	case err != nil:
		return err
	case r.wrong != id:
		return fmt.Errorf("token %d, want %d", r.wrong, id)
	case r.got != n:
		return fmt.Errorf("%d tokens, want %d", r.got, n)
	}
	return nil
}

// BenchmarkLink measures the cost of a token between two hops, including package rpc and the link.
func BenchmarkLink(b *testing.B) {
	for name, ctx := range map[string]context.Context{"read by a goroutine": stream.WithBlocking(b.Context()), "carried": b.Context()} {
		b.Run(name, func(b *testing.B) {
			flooded(b, func(engine stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]) {
				if err := reads(ctx, engine, 1000, 70000); err != nil { // until the buffers have reached their sizes
					b.Fatal(err)
				}
				b.ReportAllocs()
				b.ResetTimer()
				if err := reads(ctx, engine, b.N, 70000); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// TestStreamsThatShareDecodersKeepTheirTokens: the streams of a link are carried by one goroutine, and
// decoded into the same memory.
func TestStreamsThatShareDecodersKeepTheirTokens(t *testing.T) {
	flooded(t, func(engine stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]) {
		var streams errgroup.Group
		for id := range uint32(20) {
			streams.Go(func() error { return reads(t.Context(), engine, 300, id) })
		}
		if err := streams.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestTokensOverALinkAllocateNothing covers both ends: package rpc, this package and the link.
func TestTokensOverALinkAllocateNothing(t *testing.T) {
	flooded(t, func(engine stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]) {
		for name, ctx := range map[string]context.Context{"read by a goroutine": stream.WithBlocking(t.Context()), "carried": t.Context()} {
			const n = 100_000
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := reads(ctx, engine, n, 70000); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if allocs := after.Mallocs - before.Mallocs; allocs > n {
				t.Errorf("%s: %d allocations for %d tokens", name, allocs, n)
			}
		}
	})
}
