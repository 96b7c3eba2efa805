package e2e

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

// clients are the gRPC clients of chat-service.
var clients = []struct {
	name string
	dial func(*testing.T, string) grpc.ClientConnInterface
}{
	{"grpc-go", func(t *testing.T, addr string) grpc.ClientConnInterface { return dialGRPC(t, addr) }},
	{"kitex", dialKitex},
}

func dialKitex(t *testing.T, addr string) grpc.ClientConnInterface {
	t.Helper()
	conn, err := kitexrpc.Dial(addr, &chatv1.Chat_ServiceDesc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

func chatRequest(prompt string) *chatv1.ChatRequest {
	greedy := float32(0)
	return &chatv1.ChatRequest{
		Model:    model,
		Messages: []*chatv1.Message{{Role: "user", Content: prompt}},
		Sampling: &llmv1.Sampling{Temperature: &greedy},
	}
}

func TestGRPCClientsGetTheAnswersOfHTTP(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		for _, prompt := range []string{short, long} {
			want := w.answer(t, greedy(prompt))
			for _, c := range clients {
				chat := chatv1.NewChatClient(c.dial(t, w.chat))
				if got := generate(t, chat, chatRequest(prompt)); got != want {
					t.Errorf("%s: %q is answered with %q, but with %q over HTTP", c.name, prompt, got, want)
				}
				resp, err := chat.Complete(t.Context(), &chatv1.CompleteRequest{Chat: chatRequest(prompt)})
				if err != nil {
					t.Fatal(err)
				}
				if resp.GetText() != want || resp.GetEnd().GetFinish() != llmv1.Finish_FINISH_STOP {
					t.Errorf("%s: Complete answers %q (%v)", c.name, resp.GetText(), resp.GetEnd())
				}
			}
		}
	})
}

// generate sends one message, half-closes, and reads Started, the text, and End, in this order.
func generate(t *testing.T, c chatv1.ChatClient, req *chatv1.ChatRequest) string {
	t.Helper()
	st, err := c.Generate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Chat{Chat: req}}); err != nil {
		t.Fatal(err)
	}
	if err := st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	var started, ended bool
	for {
		out, err := st.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if ended || started != (out.GetStarted() == nil) {
			t.Fatalf("%v out of order", out)
		}
		started = true
		if text.WriteString(out.GetDelta().GetText()); out.GetEnd() != nil {
			ended = true
			if got := strings.Join(out.GetEnd().GetPath(), " > "); got != "engine > llm-worker/0 > chat-service" {
				t.Errorf("the path of the end is %q", got)
			}
		}
	}
	if !ended {
		t.Error("there was no End")
	}
	return text.String()
}

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
