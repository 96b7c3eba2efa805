package e2e

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// dialTCP is dialGRPC over one connection, which the test may break.
func dialTCP(t *testing.T, addr string) (grpc.ClientConnInterface, *net.TCPConn) {
	t.Helper()
	tcp, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return tcp, nil }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, tcp.(*net.TCPConn)
}

// TestCallersThatVanishAreLost: the caller's machine lost power, or the network failed. Only pings
// detect that.
func TestCallersThatVanishAreLost(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{worker: []string{"--pace", "5"}})
	ofChat, chatConn := dialTCP(t, w.chat)
	started(t.Context(), t, chatv1.NewChatClient(ofChat), "chat")
	ofWorker, workerConn := dialTCP(t, w.worker)
	st, err := workerv1.NewWorkerClient(ofWorker).Generate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	endless := &workerv1.TokenRequest{StreamId: "worker", Prompt: []uint32{1, 2, 3}, Sampling: &llmv1.Sampling{IgnoreEos: true}}
	if err := st.Send(&workerv1.GenerateRequest{Message: &workerv1.GenerateRequest_Tokens{Tokens: endless}}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); err != nil {
		t.Fatal(err)
	}
	dropIncoming(t, chatConn)
	dropIncoming(t, workerConn)
	begun := time.Now()
	for stream, hop := range map[string]string{"worker": "llm-worker/0", "chat": "chat-service"} {
		got := w.ended(t, hop, stream)
		t.Logf("%s noticed after %v", hop, time.Since(begun).Round(time.Second))
		if want := "client > " + hop; got.Reason != "peer_lost" || got.Path != want {
			t.Errorf("%s logged reason %s, path %q; want peer_lost, %q", hop, got.Reason, got.Path, want)
		}
	}
}
