package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
)

// grpcLimitTime bounds the refused calls of these tests.
const grpcLimitTime = 30 * time.Second

// TestHeadersOfCallsAreBounded sends a MiB of headers to both gRPC ports. The call is refused, and
// the next call on the port is answered.
func TestHeadersOfCallsAreBounded(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{})
	for service, info := range map[string]func(context.Context, string) error{
		chatService: func(ctx context.Context, note string) error {
			_, err := chatv1.NewChatClient(dialGRPC(t, w.chat)).Models(metadata.AppendToOutgoingContext(ctx, "x-note", note), &chatv1.ModelsRequest{})
			return err
		},
		llmWorker: func(ctx context.Context, note string) error {
			_, err := workerv1.NewWorkerClient(dialGRPC(t, w.worker)).Info(metadata.AppendToOutgoingContext(ctx, "x-note", note), &workerv1.InfoRequest{})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), grpcLimitTime)
		if err := info(ctx, strings.Repeat("a", 1<<20)); err == nil || status.Code(err) == codes.DeadlineExceeded {
			t.Errorf("%s: a MiB of headers: %v", service, err)
		}
		if err := info(ctx, strings.Repeat("a", 16<<10)); err != nil {
			t.Errorf("%s: 16 KiB of headers: %v", service, err)
		}
		cancel()
	}
}

// TestMessagesAreBoundedAfterDecompression sends messages over the bound that gzip makes small to
// both gRPC ports.
func TestMessagesAreBoundedAfterDecompression(t *testing.T) {
	t.Parallel()
	patient := []string{"--first-message-timeout", grpcLimitTime.String()} // a long message takes seconds on a busy machine
	w := run(t, separate, flags{chat: patient, worker: patient})
	stop := &streamv1.StopStreamRequest{StreamId: strings.Repeat("a", rpc.MaxRequest)}
	ctx, cancel := context.WithTimeout(t.Context(), grpcLimitTime)
	defer cancel()
	_, err := chatv1.NewChatClient(dialGRPC(t, w.chat)).Stop(ctx, &chatv1.StopRequest{Stream: stop}, grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("chat-service: %.300v", err)
	}
	_, err = workerv1.NewWorkerClient(dialGRPC(t, w.worker)).Stop(ctx, &workerv1.StopRequest{Stream: stop}, grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("llm-worker: %.300v", err)
	}
	w.works(t)
}
