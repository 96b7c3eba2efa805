package chat_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/answer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// breaking returns a worker that loses its first n answers midway.
func breaking(ids []uint32, n int32) tokenEngine {
	var asked atomic.Int32
	return func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		if asked.Add(1) > n {
			return (&parrot{ids: ids, finish: llmv1.Finish_FINISH_STOP}).generate(ctx, req)
		}
		lost := &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath("engine", "llm-worker/0"), Message: "gone"}
		return (&parrot{ids: ids[:len(ids)/2], fail: lost}).generate(ctx, req)
	}
}

// gather joins the final parts of each choice.
func gather(t *testing.T, e engine, req *chatv1.ChatRequest) (all [2]answer.Answer, restarted int, end *llmv1.End) {
	t.Helper()
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	for out, err := range e(ctx, req) {
		if err != nil {
			t.Fatal(err)
		}
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Delta:
			all[m.Delta.GetChoice()].Add(m.Delta)
		case *chatv1.GenerateResponse_Restarted:
			all[m.Restarted.GetChoice()] = answer.Answer{}
			restarted++
		case *chatv1.GenerateResponse_End:
			end = m.End
		}
	}
	return all, restarted, end
}

func TestRestartedAnswerPassesAllStagesAgain(t *testing.T) {
	m := model(t)
	for name, c := range map[string]struct {
		said string
		req  *chatv1.ChatRequest
		want string
		call string
	}{
		"text that is cut in a character": {"déjà vu 🙂🙃 and more", user("x"), "déjà vu 🙂🙃 and more", ""},
		"a stop string":                   {"one two three STOP four", &chatv1.ChatRequest{Messages: user("x").GetMessages(), Stop: []string{"STOP"}}, "one two three ", ""},
		"a prompt that is echoed":         {"and so on", &chatv1.ChatRequest{Prompts: []*chatv1.Prompt{{Content: &chatv1.Prompt_Text{Text: "once "}}}, Echo: true}, "once and so on", ""},
		"a tool call": {`<tool_call>{"name": "weather", "arguments": {"place": "Paris"}}</tool_call>`, &chatv1.ChatRequest{
			Messages: user("x").GetMessages(), Tools: []*chatv1.Tool{{Name: "weather", Parameters: `{"type":"object"}`}},
		}, "", `{"place": "Paris"}`},
	} {
		c.req.Model, c.req.StreamId, c.req.Gathered = m.Name, "s", true
		all, restarted, end := gather(t, pipeline(m, breaking(m.Tokenizer.Encode(c.said, false), 1)), c.req)
		if all[0].Text() != c.want || restarted != 1 || end == nil {
			t.Errorf("%s: %q after %d restarts, want %q", name, all[0].Text(), restarted, c.want)
		}
		if calls := all[0].Calls(); c.call != "" && (len(calls) != 1 || calls[0].GetName() != "weather" || calls[0].GetArguments() != c.call) {
			t.Errorf("%s: calls %v", name, calls)
		}
	}
}

func TestEachChoiceRestartsOnItsOwn(t *testing.T) {
	m := model(t)
	req := user("x")
	req.StreamId, req.N, req.Gathered = "s", 2, true
	all, restarted, end := gather(t, pipeline(m, breaking(m.Tokenizer.Encode("one two three", false), 1)), req)
	if all[0].Text() != "one two three" || all[1].Text() != "one two three" || restarted != 1 || end.GetUsage().GetCompletionTokens() != 2*uint32(len(m.Tokenizer.Encode("one two three", false))) {
		t.Errorf("%q and %q after %d restarts: %v", all[0].Text(), all[1].Text(), restarted, end)
	}
}
