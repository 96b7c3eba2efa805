package e2e

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// A call is one call of Chat/Generate.
type call = grpc.BidiStreamingClient[chatv1.GenerateRequest, chatv1.GenerateResponse]

// started requests a long answer from chat-service and returns at the first text.
func started(ctx context.Context, t *testing.T, c chatv1.ChatClient, id string) call {
	t.Helper()
	st, err := c.Generate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	req := chatRequest(long)
	req.StreamId = id
	if err := st.Send(&chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Chat{Chat: req}}); err != nil {
		t.Fatal(err)
	}
	for {
		out, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if out.GetDelta() != nil {
			return st
		}
	}
}

// TestCallersWithoutHeadersGetTypedEndings covers callers of chat-service that know gRPC, but not
// Whence.
func TestCallersWithoutHeadersGetTypedEndings(t *testing.T) {
	eachTopology(t, oneSlot, func(t *testing.T, w *whence) {
		for _, c := range clients {
			chat := chatv1.NewChatClient(c.dial(t, w.chat))

			ctx, cancel := context.WithCancel(t.Context())
			st := started(ctx, t, chat, c.name+"-reset")
			cancel()
			wantCode(t, st, codes.Canceled)
			w.endedTwice(t, c.name+"-reset", "peer_reset", "client > chat-service")

			st = started(t.Context(), t, chat, c.name+"-stop")
			if err := st.Send(&chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Stop{Stop: &streamv1.Stop{}}}); err != nil {
				t.Fatal(err)
			}
			wantCode(t, st, codes.Canceled)
			w.endedTwice(t, c.name+"-stop", "user_stop", "client > chat-service")

			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			wantCode(t, started(ctx, t, chat, c.name+"-deadline"), codes.DeadlineExceeded)
			cancel()
			w.endedTwice(t, c.name+"-deadline", "deadline", "chat-service") // whichever side's timer fires first
		}
	})
}

// wantCode reads a stream to its end, which must have the code.
func wantCode(t *testing.T, st call, want codes.Code) {
	t.Helper()
	for {
		if _, err := st.Recv(); err != nil {
			if status.Code(err) != want {
				t.Errorf("the caller got %v, want %v", err, want)
			}
			return
		}
	}
}

// endedTwice checks that chat-service and worker logged the same ending, and that the worker is
// idle.
func (w *whence) endedTwice(t *testing.T, stream, reason, path string) {
	t.Helper()
	w.idle(t)
	for hop, path := range map[string]string{"chat-service": path, "llm-worker/0": path + " > llm-worker/0"} {
		if got := w.ended(t, hop, stream); got.Reason != reason || got.Path != path {
			t.Errorf("%s: %s logged reason %s, path %q; want %s, %q", stream, hop, got.Reason, got.Path, reason, path)
		}
	}
}
