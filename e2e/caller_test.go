package e2e

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
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
