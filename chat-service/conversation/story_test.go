package conversation_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/whence-dev/whence/chat-service/conversation"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/storytest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestStories plays the scripts in testdata. A line without indentation is an event, and the
// indented lines below it are the resulting actions.
//
//	conversation Is it?           the request; n=2, prompts=1 or answered=1 may stand before its text
//	begin
//	started | delta It is. | end completion=3 reasoning=1 cached=2 | over | fail peer_lost
//	turn And now? | turn nothing | turn long | turn request | close
func TestStories(t *testing.T) {
	var m *conversation.Machine
	storytest.Play(t, func(t *testing.T, line string) (actions []string) {
		verb, rest, _ := strings.Cut(line, " ")
		if verb == "conversation" {
			m = conversation.New(request(t, rest))
			return nil
		}
		for _, a := range m.Step(event(t, verb, rest)) {
			actions = append(actions, say(t, a))
		}
		return actions
	})
}

func request(t *testing.T, rest string) *chatv1.ChatRequest {
	r := &chatv1.ChatRequest{Gathered: true}
	text := options(t, rest, map[string]func(n uint32){
		"n":        func(n uint32) { r.N = n },
		"prompts":  func(n uint32) { r.Prompts = make([]*chatv1.Prompt, n) },
		"answered": func(n uint32) { r.Answered = &chatv1.TokenIDs{Ids: make([]uint32, n)} },
	})
	r.Messages = []*chatv1.Message{{Role: "user", Content: text}}
	return r
}

// options parses words like name=1 before a text, and returns the text.
func options(t *testing.T, rest string, set map[string]func(n uint32)) string {
	for {
		word, after, _ := strings.Cut(rest, " ")
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return rest
		}
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil || set[name] == nil {
			t.Fatalf("%q: %v", word, err)
		}
		set[name](uint32(n))
		rest = after
	}
}

func event(t *testing.T, verb, rest string) conversation.Event {
	item := func(out *chatv1.GenerateResponse) conversation.Event {
		return conversation.Event{Kind: conversation.Item, Item: out}
	}
	switch verb {
	case "begin":
		return conversation.Event{Kind: conversation.Begin}
	case "started":
		return item(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{}}})
	case "delta":
		return item(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: rest}}})
	case "end":
		end := &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_STOP, Tokens: 1, Usage: &llmv1.Usage{}}
		options(t, rest, map[string]func(n uint32){
			"prompt":     func(n uint32) { end.Usage.PromptTokens = n },
			"completion": func(n uint32) { end.Usage.CompletionTokens = n },
			"cached":     func(n uint32) { end.Usage.CachedTokens = &n },
			"reasoning":  func(n uint32) { end.Usage.ReasoningTokens = &n },
		})
		return item(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: end}})
	case "over":
		return conversation.Event{Kind: conversation.Over}
	case "turn":
		return conversation.Event{Kind: conversation.Turn, Turn: turn(rest)}
	case "close":
		return conversation.Event{Kind: conversation.Close}
	case "fail":
		return conversation.Event{Kind: conversation.Fail, Err: streamerr.New(streamerr.ParseReason(rest), "as scripted")}
	}
	t.Fatalf("there is no event %q", verb)
	return conversation.Event{}
}

func turn(text string) *chatv1.ConverseRequest {
	switch text {
	case "request":
		return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Chat{Chat: &chatv1.ChatRequest{}}}
	case "nothing":
		return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Turn{Turn: &chatv1.Turn{}}}
	case "long":
		text = strings.Repeat("x", conversation.MaxBytes)
	}
	return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Turn{Turn: &chatv1.Turn{Messages: []*chatv1.Message{{Role: "user", Content: text}}}}}
}

// say formats an action for the stories.
func say(t *testing.T, a conversation.Action) string {
	switch a.Verb {
	case conversation.Ask:
		var all []string
		for _, m := range a.Request.GetMessages() {
			all = append(all, m.GetRole()+": "+m.GetContent())
		}
		if n := len(a.Request.GetAnswered().GetIds()); n > 0 {
			all = append(all, fmt.Sprintf("%d tokens of the answer", n))
		}
		if a.Request.GetGathered() {
			all = append(all, "gathered")
		}
		return "ask " + strings.Join(all, " | ")
	case conversation.Await:
		return "await"
	case conversation.Refuse:
		e := streamerr.As(a.Err)
		return strings.TrimSpace(fmt.Sprintf("refuse %s %s", e.Reason, e.Param)) + ": " + e.Message
	case conversation.Break:
		return "break"
	case conversation.Deliver, conversation.End:
	}
	switch m := a.Message.GetMessage().(type) {
	case *chatv1.ConverseResponse_Started:
		return "deliver started"
	case *chatv1.ConverseResponse_Delta:
		return "deliver delta " + m.Delta.GetText()
	case *chatv1.ConverseResponse_TurnEnd:
		return fmt.Sprintf("deliver end of turn %d, tokens=%d%s", m.TurnEnd.GetTurn(), m.TurnEnd.GetTokens(), figures(m.TurnEnd.GetUsage()))
	case *chatv1.ConverseResponse_End:
		return fmt.Sprintf("end tokens=%d%s", m.End.GetTokens(), figures(m.End.GetUsage()))
	}
	t.Fatal(a)
	return ""
}

func figures(u *llmv1.Usage) string {
	text := fmt.Sprintf(" prompt=%d completion=%d cached=%d", u.GetPromptTokens(), u.GetCompletionTokens(), u.GetCachedTokens())
	if u.ReasoningTokens != nil {
		text += fmt.Sprintf(" reasoning=%d", u.GetReasoningTokens())
	}
	return text
}
