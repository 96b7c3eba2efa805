package restart_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/chat-service/restart"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/storytest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestStories plays the scripts in testdata. A line without indentation is a time and an event, and
// the indented line below it is the resulting action.
//
//	0s begin | 0s started a | 1s delta 2 | 1s end | 1s over
//	2s fail a peer_lost       after a token; "fail a peer_lost early" is before the first
//	2s paid | 2s unpaid | 2s stop client_gone
func TestStories(t *testing.T) {
	var m *restart.Machine
	storytest.Play(t, func(t *testing.T, line string) []string {
		words := strings.Fields(line)
		now, err := time.ParseDuration(words[0])
		if err != nil {
			t.Fatal(err)
		}
		if words[1] == "begin" {
			m = &restart.Machine{}
		}
		if a, ok := m.Step(now, event(t, words[1], words[2:])); ok {
			return []string{say(t, a)}
		}
		return nil
	})
}

func event(t *testing.T, verb string, args []string) restart.Event {
	switch verb {
	case "begin":
		return restart.Event{Kind: restart.Begin}
	case "started":
		return restart.Event{Kind: restart.Item, Worker: args[0], Item: &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{}}}}
	case "delta":
		n, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return restart.Event{Kind: restart.Item, Item: &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Tokens: uint32(n)}}}}
	case "end":
		return restart.Event{Kind: restart.Item, Item: &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{}}}}
	case "over":
		return restart.Event{Kind: restart.Over}
	case "fail":
		return restart.Event{Kind: restart.Fail, Worker: args[0], Err: scripted(args[1], "on "+args[0]), Flowing: len(args) == 2}
	case "stop":
		return restart.Event{Kind: restart.Stop, Err: scripted(args[0], "from above")}
	case "paid":
		return restart.Event{Kind: restart.Paid}
	case "unpaid":
		return restart.Event{Kind: restart.Unpaid}
	}
	t.Fatalf("there is no event %q", verb)
	return restart.Event{}
}

func scripted(reason, message string) error {
	return streamerr.New(streamerr.ParseReason(reason), "%s", message)
}

// say formats an action for the stories.
func say(t *testing.T, a restart.Action) string {
	switch a.Verb {
	case restart.Ask:
		if a.Anew {
			return "ask anew"
		}
		return "ask"
	case restart.Pay:
		return "pay"
	case restart.Deliver:
		return "deliver"
	case restart.TakeBack:
		return fmt.Sprintf("take back %d tokens: from %s to %s, %s", a.N, a.From, a.To, a.Why.Reason)
	case restart.End:
		e := streamerr.As(a.Err)
		return fmt.Sprintf("end %s: %s", e.Reason, e.Text())
	case restart.Done:
		return "done"
	}
	t.Fatal(a)
	return ""
}
