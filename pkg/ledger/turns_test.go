package ledger_test

import (
	"context"
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func admitted(prompt uint32) *chatv1.ConverseResponse {
	return &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_Started{Started: &llmv1.Started{Model: "m", PromptTokens: prompt}}}
}

func turnEnd(used *llmv1.Usage) *chatv1.ConverseResponse {
	return &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_TurnEnd{TurnEnd: &chatv1.TurnEnd{Usage: used}}}
}

func used(prompt, cached uint32) *llmv1.Usage {
	return &llmv1.Usage{PromptTokens: prompt, CachedTokens: &cached}
}

// TestEachTurnOfAConversationCounts checks that the record of a conversation has the sum of its
// complete turns and the prompt of the open turn, at every moment, and that the usage record has
// the same figures.
func TestEachTurnOfAConversationCounts(t *testing.T) {
	end := func(u *llmv1.Usage) *chatv1.ConverseResponse {
		return &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_End{End: &llmv1.End{Usage: u}}}
	}
	for name, c := range map[string]struct {
		messages       []*chatv1.ConverseResponse
		prompt, cached uint32
		incomplete     bool // no answer is complete
	}{
		"first turn is open":                   {[]*chatv1.ConverseResponse{admitted(10)}, 10, 0, true},
		"first turn is complete":               {[]*chatv1.ConverseResponse{admitted(10), turnEnd(used(10, 0))}, 10, 0, false},
		"second turn is open":                  {[]*chatv1.ConverseResponse{admitted(10), turnEnd(used(10, 2)), admitted(30)}, 40, 2, false},
		"second turn is complete":              {[]*chatv1.ConverseResponse{admitted(10), turnEnd(used(10, 2)), admitted(30), turnEnd(used(30, 9))}, 40, 11, false},
		"all turns are complete":               {[]*chatv1.ConverseResponse{admitted(10), turnEnd(used(10, 2)), admitted(30), turnEnd(used(30, 9)), end(used(40, 11))}, 40, 11, false},
		"only turn is complete":                {[]*chatv1.ConverseResponse{admitted(10), turnEnd(used(10, 2)), end(used(10, 2))}, 10, 2, false},
		"turn is admitted twice":               {[]*chatv1.ConverseResponse{admitted(10), turnEnd(used(10, 2)), admitted(30), admitted(31)}, 41, 2, false},
		"engine counts more than was admitted": {[]*chatv1.ConverseResponse{admitted(10), turnEnd(used(12, 2)), admitted(30), turnEnd(used(33, 9)), end(used(45, 11))}, 45, 11, false},
		"engine counts less than was admitted": {[]*chatv1.ConverseResponse{admitted(10), turnEnd(used(9, 2)), admitted(30), turnEnd(used(29, 9)), end(used(38, 11))}, 38, 11, false},
		"turn has no usage":                    {[]*chatv1.ConverseResponse{admitted(10), turnEnd(nil), admitted(30)}, 40, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var story ledger.Tokens
			records := usageRecords(t, func(l *ledger.Ledger) {
				r, _ := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "api-service", First: true}).(*ledger.Record)
				for _, m := range c.messages {
					r.Note(observer.Event{Kind: observer.Announced, Message: m})
				}
				r.End(streamerr.UserStop, streamerr.NewPath("client", "api-service"), "")
				r.Close()
				story = ledger.TokensOf(l.Get("a"))
			})
			if story.Prompt != c.prompt || (story.Cached == nil) != c.incomplete || story.Cached != nil && *story.Cached != c.cached {
				t.Errorf("the story has %+v", story)
			}
			if len(records) != 1 || records[0].Prompt != c.prompt || (records[0].Cached == nil) != c.incomplete {
				t.Errorf("the usage records are %+v", records)
			}
		})
	}
}
