package chat

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/choices"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	answers "github.com/whence-dev/whence/internal/answer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Conversation is a request whose turns come one after another.
type Conversation struct {
	First *chatv1.ChatRequest
	Later *stream.Inbox[*chatv1.ConverseRequest]
}

// Converse answers each turn as next would answer the conversation so far. It ends with the ending of the first turn that
// does not complete, with INVALID if a turn is no turn or has no room in the context, or, when the caller has no more turns,
// with that of the last answer.
func Converse(next Engine) stream.Engine[*Conversation, *chatv1.ConverseResponse] {
	return func(ctx context.Context, c *Conversation) iter.Seq2[*chatv1.ConverseResponse, error] {
		return func(yield func(*chatv1.ConverseResponse, error) bool) {
			if choices.Count(c.First) > 1 || len(c.First.GetPrompts()) > 0 {
				yield(nil, streamerr.InvalidParam("n", "a conversation goes on with one answer, and to messages"))
				return
			}
			t := talk{req: proto.CloneOf(c.First), size: proto.Size(c.First), yield: yield}
			t.req.Gathered = false // each delta is told
			for t.answer(next(ctx, t.req)) {
				in, err := c.Later.Next(ctx)
				if err == nil {
					err = t.goOn(in)
				}
				switch {
				case errors.Is(err, io.EOF):
					t.end.Usage, t.end.Tokens = &t.used, 0 // its TurnEnd has counted them
					yield(&chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_End{End: t.end}}, nil)
					return
				case err != nil:
					yield(nil, err)
					return
				}
			}
		}
	}
}

// A talk is a conversation under way.
type talk struct {
	req   *chatv1.ChatRequest // all that was said
	size  int                 // of req, in bytes; templates may leave out what was said, so the context does not bound it
	yield func(*chatv1.ConverseResponse, error) bool
	turn  uint32
	end   *llmv1.End // of the last answer
	used  llmv1.Usage
}

// answer passes an answer on, and notes it. It reports false when the loop is to be left.
func (t *talk) answer(items iter.Seq2[*chatv1.GenerateResponse, error]) bool {
	var said answers.Answer // bounded by the context
	t.end = nil
	for out, err := range items {
		if err != nil {
			t.yield(nil, err)
			return false
		}
		resp := &chatv1.ConverseResponse{}
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			resp.Message = &chatv1.ConverseResponse_Started{Started: m.Started}
		case *chatv1.GenerateResponse_Delta:
			said.Add(m.Delta)
			resp.Message = &chatv1.ConverseResponse_Delta{Delta: m.Delta}
		case *chatv1.GenerateResponse_End:
			t.end = m.End
			continue // its stream is released behind it, and only then is the turn over
		}
		if !t.yield(resp, nil) {
			return false
		}
	}
	if t.end == nil {
		return false // the engine ended without an ending, and so does this one
	}
	t.turn++
	usage := t.end.GetUsage()
	t.used.PromptTokens += usage.GetPromptTokens()
	t.used.CompletionTokens += usage.GetCompletionTokens()
	t.used.CachedTokens += usage.GetCachedTokens()
	if usage != nil && usage.ReasoningTokens != nil {
		t.used.ReasoningTokens = new(t.used.GetReasoningTokens() + *usage.ReasoningTokens)
	}
	answer := &chatv1.Message{Role: "assistant", Content: said.Text(), Reasoning: said.Reasoning(), ToolCalls: said.Calls()}
	t.size += proto.Size(answer)
	t.req.Messages = append(t.req.Messages, answer)
	return t.yield(&chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_TurnEnd{TurnEnd: &chatv1.TurnEnd{
		Turn: t.turn, Finish: t.end.GetFinish(), MatchedStop: t.end.GetMatchedStop(), Usage: usage, Tokens: t.end.GetTokens(),
	}}}, nil)
}

// goOn makes the next request of what the caller says.
func (t *talk) goOn(in *chatv1.ConverseRequest) error {
	if in.GetTurn() == nil {
		return streamerr.New(streamerr.Invalid, "only the first message may be a request; later ones are turns")
	}
	if len(in.GetTurn().GetMessages()) == 0 {
		return streamerr.InvalidParam("turn.messages", "the turn has no messages")
	}
	if t.size += proto.Size(in); t.size > MaxComposed {
		return streamerr.InvalidParam("turn.messages", "with this turn the conversation is longer than %d bytes", MaxComposed)
	}
	t.req.Messages = append(t.req.Messages, in.GetTurn().GetMessages()...)
	t.req.Answered = nil // the beginning of the first answer
	return nil
}
