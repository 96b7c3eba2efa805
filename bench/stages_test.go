package bench_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/bench"
	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
)

// BenchmarkStage measures the cost of a token at each stage alone, over an engine without cost:
// time and allocations per token. If a stage crosses sockets, both ends count.
func BenchmarkStage(b *testing.B) {
	up := upstream(b, 0)
	model, err := chat.Load(whencetiny.FS(), whencetiny.Name, whencetiny.Owner)
	if err != nil {
		b.Fatal(err)
	}
	sampling := func(n int) *llmv1.Sampling {
		return &llmv1.Sampling{MaxTokens: proto.Uint32(uint32(n)), Temperature: proto.Float32(0), IgnoreEos: true}
	}
	ask := func(n int) *chatv1.ChatRequest {
		return &chatv1.ChatRequest{Model: whencetiny.Name, Messages: []*chatv1.Message{{Role: "user", Content: "hi"}}, Sampling: sampling(n)}
	}
	tokens := func(n int) *workerv1.TokenRequest {
		return &workerv1.TokenRequest{Prompt: []uint32{1, 2, 3}, Sampling: sampling(n)}
	}

	b.Run("1 embedded model and batch", func(b *testing.B) {
		weights, err := tinyllama.Load(whencetiny.FS(), tinyllama.LoadOptions{})
		if err != nil {
			b.Fatal(err)
		}
		loop := batch.New(tinyllama.New(weights, tinyllama.Options{}), batch.Options{})
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() { defer close(done); loop.Run(ctx) }()
		measure(b, 1000, loop.Generate, tokens)
		cancel()
		<-done
	})
	b.Run("2 llm-worker to chat-service", func(b *testing.B) {
		p := start(b, up)
		cc, err := grpc.NewClient(p.Worker, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		defer cc.Close()
		measure(b, 1<<20, rpc.Dial("bench", "llm-worker", workerv1.NewWorkerClient(cc).Generate, methods.Worker).Range, tokens)
	})
	b.Run("3 pipeline", func(b *testing.B) {
		measure(b, 1000, chat.New(model, stream.Push(up.Generate)).Range, ask)
	})
	b.Run("4 chat-service to api-service", func(b *testing.B) {
		// This figure includes the pipeline and the hop below it: subtract stages 2 and 3.
		p := start(b, up)
		cc, err := kitexrpc.Dial(p.Chat, &chatv1.Chat_ServiceDesc)
		if err != nil {
			b.Fatal(err)
		}
		defer cc.Close()
		measure(b, 1000, rpc.Dial("bench", "chat-service", chatv1.NewChatClient(cc).Generate, methods.Chat).Range, ask)
	})
	b.Run("5 chunk", func(b *testing.B) {
		chunks := openai.NewChunks(&llmv1.Started{StreamId: "str-0123456789", Model: whencetiny.Name}, false)
		delta := &chatv1.Delta{Text: " token"}
		var buf []byte
		b.ReportAllocs()
		for b.Loop() {
			buf = chunks.AppendDelta(buf[:0], delta)
		}
	})
}

func start(b *testing.B, up *bench.Upstream) *bench.Path {
	b.Helper()
	p, err := bench.Start(up.Generate)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Stop)
	return p
}

// measure reads b.N tokens, in streams of at most limit.
func measure[Req, Item any](b *testing.B, limit int, e stream.Sequence[Req, Item], ask func(n int) Req) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= limit {
		for _, err := range e(b.Context(), ask(min(left, limit))) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
}
