package edge_test

import (
	"testing"

	"github.com/whence-dev/whence/api-service/edge/sse"
	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// TestTokenIsEncodedWithoutAllocations covers a token of the first choice, of another choice, and
// of reasoning. BenchmarkToken counts the allocations of the whole path to the socket.
func TestTokenIsEncodedWithoutAllocations(t *testing.T) {
	c, err := openai.ParseChat([]byte(`{"model":"m","n":2,"stream":true,"messages":[{"role":"user","content":"x"}]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var lines sse.Encoder
	write := c.Call().Events()
	write(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{StreamId: "s", Model: "m"}}}, &lines)
	for _, d := range []*chatv1.Delta{{Text: " token"}, {Choice: 1, Text: " \"token\"\n"}, {Reasoning: " thought"}} {
		out := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: d}}
		if n := testing.AllocsPerRun(100, func() {
			write(out, &lines)
			_, _ = lines.Take()
		}); n != 0 {
			t.Errorf("%v: %v allocations", d, n)
		}
	}
}
