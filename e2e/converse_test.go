package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/status"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// then is the second prompt of most conversations.
const then = "And what is Whence?"

func firstTurn(prompt, id string) *chatv1.ConverseRequest {
	req := chatRequest(prompt)
	req.StreamId = id
	return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Chat{Chat: req}}
}

func nextTurn(prompt string) *chatv1.ConverseRequest {
	return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Turn{Turn: &chatv1.Turn{Messages: []*chatv1.Message{{Role: "user", Content: prompt}}}}}
}

// A conversation is the caller's side of a conversation.
type conversation struct {
	t  *testing.T
	st chatv1.Chat_ConverseClient
}

func converse(t *testing.T, c chatv1.ChatClient, first *chatv1.ConverseRequest) conversation {
	t.Helper()
	st, err := c.Converse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	talk := conversation{t, st}
	talk.say(first)
	return talk
}

func (c conversation) say(in *chatv1.ConverseRequest) {
	c.t.Helper()
	if err := c.st.Send(in); err != nil {
		c.t.Fatal(err)
	}
}

// hear reads the answer to one turn.
func (c conversation) hear() (text string, end *chatv1.TurnEnd) {
	c.t.Helper()
	for end == nil {
		out, err := c.st.Recv()
		if err != nil {
			c.t.Fatal(err)
		}
		text += out.GetDelta().GetText()
		end = out.GetTurnEnd()
	}
	return text, end
}

// over reads to the end of a conversation that gets no more answers.
func (c conversation) over() (last *chatv1.ConverseResponse, l endingView) {
	c.t.Helper()
	for {
		out, err := c.st.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.detail(status.Convert(err).Details())
			}
			l.trailer(c.st.Trailer())
			return last, l
		}
		last = out
	}
}

// refusal returns the ending in the trailers.
func (l *endingView) refusal() *refusal {
	return &refusal{Reason: l.trailerReason, Path: strings.Split(l.trailPath, " > ")}
}

// TestConversationsAnswerLikeHTTPAndReadOnlyNewTokens: the second turn finds the first in the KV
// cache, and has the same answer as without a cache.
func TestConversationsAnswerLikeHTTPAndReadOnlyNewTokens(t *testing.T) {
	t.Parallel()
	plain := run(t, allInOne, flags{worker: []string{"--no-prefix-cache"}})
	want := []string{plain.answer(t, greedy(short))}
	want = append(want, plain.answer(t, greedy(short, "messages", []any{
		map[string]any{"role": "user", "content": short}, map[string]any{"role": "assistant", "content": want[0]}, map[string]any{"role": "user", "content": then},
	})))
	w := run(t, separate, flags{})
	for _, c := range clients {
		id := "talk-by-" + c.name
		talk := converse(t, chatv1.NewChatClient(c.dial(t, w.chat)), firstTurn(short, id))
		first, one := talk.hear()
		talk.say(nextTurn(then))
		second, two := talk.hear()
		if err := talk.st.CloseSend(); err != nil {
			t.Fatal(err)
		}
		last, l := talk.over()
		if first != want[0] || second != want[1] {
			t.Errorf("%s: %q, %q; without a cache %q", c.name, first, second, want)
		}
		// All earlier prompts and answers, except for the token that is read again.
		known := one.GetUsage().GetPromptTokens() + one.GetUsage().GetCompletionTokens() - 1
		if two.GetTurn() != 2 || two.GetUsage().GetCachedTokens() < known {
			t.Errorf("%s: %v after %v", c.name, two, one)
		}
		all := last.GetEnd().GetUsage()
		if all.GetCompletionTokens() != one.GetUsage().GetCompletionTokens()+two.GetUsage().GetCompletionTokens() || l.trailerReason != "completed" || l.trailPath != "engine > llm-worker/0 > chat-service" {
			t.Errorf("%s: %v, %+v", c.name, last, l)
		}
		if got := w.ended(t, chatService, id); got.Reason != "completed" || got.Path != "engine > llm-worker/0 > chat-service" {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	w.idle(t)
}

func TestGRPCurlConversesAndComposes(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{})
	want := w.answer(t, greedy(short))
	lines := func(all ...any) string {
		var b strings.Builder
		for _, m := range all {
			line, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(line)
			b.WriteByte('\n')
		}
		return b.String()
	}
	type m = map[string]any
	chat := func(content string) m {
		return m{"chat": m{"model": model, "messages": []any{m{"role": "user", "content": content}}, "sampling": m{"temperature": 0}}}
	}
	out, ok := grpcurl(t, w.chat, "-d", lines(chat(short), m{"turn": m{"messages": []any{m{"role": "user", "content": then}}}}), "whence.chat.v1.Chat/Converse")
	got := messages(t, out)
	turns := 0
	for _, msg := range got {
		if msg["turnEnd"] != nil {
			turns++
		}
	}
	if !ok || turns != 2 || got[len(got)-1]["end"] == nil {
		t.Errorf("%d turns: %s", turns, out)
	}
	half := len(short) / 2
	out, ok = grpcurl(t, w.chat, "-d", lines(chat(short[:half]), m{"piece": short[half:]}, m{"go": m{}}), "whence.chat.v1.Chat/Compose")
	if got := messages(t, out); !ok || len(got) != 1 || got[0]["answer"].(m)["text"] != want {
		t.Errorf("%s, want %q", out, want)
	}
}
