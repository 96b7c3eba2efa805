package chat_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// TestLastPieceIsMarked: a piece is marked if it is known that only the end follows, because the
// answer has as many tokens as it may have, or ends with the piece.
func TestLastPieceIsMarked(t *testing.T) {
	m := model(t)
	ids := m.Tokenizer.Encode("The fox sleeps.", false)
	for name, c := range map[string]struct {
		change func(req *chatv1.ChatRequest)
		finish llmv1.Finish
		marked bool
	}{
		"max_tokens": {func(req *chatv1.ChatRequest) {
			req.Sampling = &llmv1.Sampling{MaxTokens: proto.Uint32(uint32(len(ids)))}
		}, llmv1.Finish_FINISH_LENGTH, true},
		"a stop string":   {func(req *chatv1.ChatRequest) { req.Stop, req.IncludeStop = []string{"sleeps"}, true }, llmv1.Finish_FINISH_LENGTH, true},
		"end-of-sequence": {func(*chatv1.ChatRequest) {}, llmv1.Finish_FINISH_STOP, false},
	} {
		req := user("Hi")
		c.change(req)
		p := &parrot{ids: ids, finish: c.finish}
		var marks []bool
		for out, err := range pipeline(m, p.generate)(t.Context(), req) {
			if err != nil {
				t.Fatal(name, err)
			}
			if d := out.GetDelta(); d != nil {
				marks = append(marks, d.GetLast())
			}
		}
		for i, marked := range marks {
			if last := i == len(marks)-1; marked != (last && c.marked) {
				t.Errorf("%s: piece %d of %d is marked: %t", name, i, len(marks), marked)
			}
		}
	}
}
