package chat_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func turn(contents ...string) *chatv1.ConverseRequest {
	t := &chatv1.Turn{}
	for _, c := range contents {
		t.Messages = append(t.Messages, &chatv1.Message{Role: "user", Content: c})
	}
	return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Turn{Turn: t}}
}

// conversation returns a conversation whose later messages have all arrived, and its end too if it
// is over.
func conversation(first *chatv1.ChatRequest, over bool, later ...*chatv1.ConverseRequest) *chat.Conversation {
	c := &chat.Conversation{First: first, Later: stream.NewInbox[*chatv1.ConverseRequest](100, 2*chat.MaxComposed)}
	for _, in := range later {
		if c.Later.Put(in, proto.Size(in)) != nil {
			panic("no room")
		}
	}
	if over {
		c.Later.Close()
	}
	return c
}

// readTurns ranges over a conversation. It returns the answers and the ends of the turns.
func readTurns(t *testing.T, e stream.Sequence[*chat.Conversation, *chatv1.ConverseResponse], c *chat.Conversation) (answers []string, turns []*chatv1.TurnEnd, end *llmv1.End, err error) {
	t.Helper()
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	var text strings.Builder
	for out, e := range e(ctx, c) {
		if e != nil {
			return answers, turns, nil, e
		}
		text.WriteString(out.GetDelta().GetText())
		if te := out.GetTurnEnd(); te != nil {
			answers, turns = append(answers, text.String()), append(turns, te)
			text.Reset()
		}
		end = out.GetEnd()
	}
	return answers, turns, end, nil
}

func TestTurnIsAnsweredLikeOneRequestWithTheWholeConversation(t *testing.T) {
	m := model(t)
	p := &parrot{ids: m.Tokenizer.Encode("So it is.", false)}
	first := user("Is it?")
	first.StreamId = "talk"
	answers, turns, end, err := readTurns(t, chat.Converse(pipeline(m, p.generate)), conversation(first, true, turn("And now?"), turn("Still?", "Really?")))
	if err != nil || len(answers) != 3 || answers[0] != "So it is." || answers[2] != "So it is." {
		t.Fatal(answers, err)
	}
	want := "<|im_start|>user\nIs it?<|im_end|>\n<|im_start|>assistant\nSo it is.<|im_end|>\n" +
		"<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\nSo it is.<|im_end|>\n" +
		"<|im_start|>user\nStill?<|im_end|>\n<|im_start|>user\nReally?<|im_end|>\n<|im_start|>assistant\n"
	if got := m.Tokenizer.Decode(p.asked.Load().GetPrompt(), false); got != want {
		t.Errorf("the last turn's prompt is %q", got)
	}
	if id := p.asked.Load().GetStreamId(); id != "talk" {
		t.Errorf("the last turn's stream is %q", id)
	}
	var used llmv1.Usage
	for i, te := range turns {
		if te.GetTurn() != uint32(i+1) || te.GetFinish() != llmv1.Finish_FINISH_LENGTH {
			t.Error(te)
		}
		used.PromptTokens += te.GetUsage().GetPromptTokens()
		used.CompletionTokens += te.GetUsage().GetCompletionTokens()
	}
	if !proto.Equal(end.GetUsage(), &used) || used.CompletionTokens == 0 || end.GetReason() != streamv1.Reason_REASON_COMPLETED {
		t.Error(end, &used)
	}
	if len(first.GetMessages()) != 1 {
		t.Error("the caller's request was changed")
	}
}

// The beginning of an answer belongs to the first turn only.
func TestMovedConversationReplaysOnlyItsFirstAnswer(t *testing.T) {
	m := model(t)
	p := &parrot{ids: m.Tokenizer.Encode(" and on.", false)}
	first := with(user("Is it?"), func(r *chatv1.ChatRequest) {
		r.TellIds, r.Answered = true, &chatv1.TokenIDs{Ids: m.Tokenizer.Encode("It goes on", false)}
	})
	answers, _, _, err := readTurns(t, chat.Converse(pipeline(m, p.generate)), conversation(first, true, turn("And now?")))
	if err != nil || len(answers) != 2 || answers[0] != "It goes on and on." || answers[1] != " and on." {
		t.Errorf("%q, %v", answers, err)
	}
	if n := p.asked.Load().GetGenerated(); n != 0 {
		t.Errorf("the second turn begins with %d tokens of the first answer", n)
	}
}

func TestConversationCountsReasoning(t *testing.T) {
	m := modelWith(t, thinking, false, "<think>", "</think>")
	p := &parrot{ids: m.Tokenizer.Encode("hm</think>yes", false)}
	_, turns, end, err := readTurns(t, chat.Converse(pipeline(m, p.generate)), conversation(user("Is it?"), true, turn("And now?")))
	if err != nil || len(turns) != 2 || turns[0].GetUsage().GetReasoningTokens() == 0 {
		t.Fatal(turns, err)
	}
	if got, want := end.GetUsage().GetReasoningTokens(), 2*turns[0].GetUsage().GetReasoningTokens(); got != want {
		t.Errorf("%d tokens of reasoning, want %d", got, want)
	}
}

func TestConversationIsBoundedLikeOneRequest(t *testing.T) {
	m := modelWith(t, "{{ messages[-1].content }}", false)
	p := &parrot{ids: m.Tokenizer.Encode("So.", false)}
	long := strings.Repeat("word ", chat.MaxComposed/10) // half the limit
	answers, _, _, err := readTurns(t, chat.Converse(pipeline(m, p.generate)), conversation(user("a"), true, turn(long, "b"), turn(long, "c"), turn("d")))
	if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != "turn.messages" || len(answers) != 2 {
		t.Errorf("%d answers, %v", len(answers), err)
	}
}

func TestInvalidTurnEndsTheConversation(t *testing.T) {
	m := model(t)
	for name, c := range map[string]struct {
		later  *chatv1.ConverseRequest
		reason streamerr.Reason
		param  string
	}{
		"no messages":           {turn(), streamerr.Invalid, "turn.messages"},
		"another request":       {&chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Chat{Chat: user("x")}}, streamerr.Invalid, ""},
		"bad UTF-8":             {turn("a\xff"), streamerr.Invalid, "messages[2].content"},
		"no room":               {turn(strings.Repeat("word ", 3000)), streamerr.Invalid, "messages"},
		"nothing that is known": {&chatv1.ConverseRequest{}, streamerr.Invalid, ""},
	} {
		p := &parrot{ids: m.Tokenizer.Encode("Yes.", false)}
		answers, _, _, err := readTurns(t, chat.Converse(pipeline(m, p.generate)), conversation(user("x"), false, c.later, turn("never answered")))
		if e := streamerr.As(err); err == nil || e.Reason != c.reason || e.Param != c.param || len(answers) != 1 {
			t.Errorf("%s: %v (param %q) after %q", name, err, e.Param, answers)
		}
	}
	p := &parrot{ids: m.Tokenizer.Encode("Yes.", false), fail: streamerr.New(streamerr.PeerLost, "gone")}
	if _, _, _, err := readTurns(t, chat.Converse(pipeline(m, p.generate)), conversation(user("x"), true)); !errors.Is(err, streamerr.PeerLost) {
		t.Error(err)
	}
}

func TestConversationKeepsTheContract(t *testing.T) {
	m := model(t)
	streamtest.Run(t, func(*testing.T) streamtest.Subject[*chat.Conversation, *chatv1.ConverseResponse] {
		p := &parrot{ids: m.Tokenizer.Encode("one two three ", false), pause: time.Millisecond}
		long := &parrot{ids: p.ids, pause: time.Millisecond, forever: true}
		worker := func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
			if strings.Contains(m.Tokenizer.Decode(req.GetPrompt(), false), "on and on") {
				return long.generate(ctx, req)
			}
			return p.generate(ctx, req)
		}
		return streamtest.Subject[*chat.Conversation, *chatv1.ConverseResponse]{
			Sequence: chat.Converse(pipeline(m, worker)),
			Short:    func() *chat.Conversation { return conversation(user("hi"), true, turn("and")) },
			Long:     func() *chat.Conversation { return conversation(user("hi"), true, turn("on and on")) },
			Bad:      func() *chat.Conversation { return conversation(user("\xff"), true) },
			Live:     func() int { return int(p.live.Load() + long.live.Load()) },
		}
	})
}

func piece(text string) *chatv1.ComposeRequest {
	return &chatv1.ComposeRequest{Message: &chatv1.ComposeRequest_Piece{Piece: text}}
}

func composition(first *chatv1.ChatRequest, later ...*chatv1.ComposeRequest) *chat.Composition {
	c := &chat.Composition{First: first, Later: stream.NewInbox[*chatv1.ComposeRequest](1000, 10<<20)}
	for _, in := range later {
		if c.Later.Put(in, proto.Size(in)) != nil {
			panic("no room")
		}
	}
	return c
}

func TestComposedRequestIsOneRequest(t *testing.T) {
	m := model(t)
	next := &chatv1.ComposeRequest{Message: &chatv1.ComposeRequest_Next{Next: &chatv1.Message{Role: "user", Content: "Is"}}}
	closed := composition(user("Wh"), piece("en"), piece("ce?"), next, piece(" it?"))
	closed.Later.Close()
	said := composition(user("When"), piece("ce?"), next, piece(" it?"), &chatv1.ComposeRequest{Message: &chatv1.ComposeRequest_Go{Go: &chatv1.Go{}}}, piece("never"))
	for _, c := range []*chat.Composition{closed, said} {
		p := &parrot{ids: m.Tokenizer.Encode("Yes.", false)}
		var text string
		for out, err := range chat.Compose(pipeline(m, p.generate))(t.Context(), c) {
			if err != nil {
				t.Fatal(err)
			}
			text += out.GetDelta().GetText()
		}
		if got := m.Tokenizer.Decode(p.asked.Load().GetPrompt(), false); text != "Yes." ||
			got != "<|im_start|>user\nWhence?<|im_end|>\n<|im_start|>user\nIs it?<|im_end|>\n<|im_start|>assistant\n" {
			t.Errorf("%q, asked %q", text, got)
		}
	}
}

func TestComposedRequestsAreBounded(t *testing.T) {
	m := model(t)
	for name, c := range map[string]*chat.Composition{
		"longer than":     composition(user("x"), piece(strings.Repeat("x", chat.MaxComposed/2)), piece(strings.Repeat("x", chat.MaxComposed/2))),
		"no message to":   composition(&chatv1.ChatRequest{}, piece("x")),
		"only the first":  composition(user("x"), &chatv1.ComposeRequest{Message: &chatv1.ComposeRequest_Chat{Chat: user("x")}}),
		"later ones are ": composition(user("x"), &chatv1.ComposeRequest{}),
	} {
		p := &parrot{ids: []uint32{1}}
		var last error
		for _, err := range chat.Compose(pipeline(m, p.generate))(t.Context(), c) {
			last = err
		}
		if !errors.Is(last, streamerr.Invalid) || !strings.Contains(last.Error(), name) || p.asked.Load() != nil {
			t.Errorf("%s: %v", name, last)
		}
	}
}
