package extent_test

import (
	"testing"

	"github.com/whence-dev/whence/api-service/extent"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var started = &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{}}}

func text(choice uint32, piece string) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Choice: choice, Text: piece}}}
}

func call(index uint32, id, arguments string) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{
		ToolCalls: []*chatv1.ToolCallDelta{{Index: index, Id: id, Arguments: arguments}},
	}}}
}

func choiceEnd(choice uint32, finish llmv1.Finish) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_ChoiceEnd{ChoiceEnd: &chatv1.ChoiceEnd{Choice: choice, Finish: finish}}}
}

var end = &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{}}}

func TestExtentGrowsWithTheItems(t *testing.T) {
	type step struct {
		out  *chatv1.GenerateResponse
		want extent.Extent
	}
	for name, test := range map[string]struct {
		choices int
		steps   []step
	}{
		"text": {1, []step{{started, extent.Nothing}, {text(0, "a"), extent.Part}, {text(0, "b"), extent.Part}, {end, extent.Answer}}},
		"a call in pieces": {1, []step{
			{started, extent.Nothing}, {call(0, "c", ""), extent.Part}, {call(0, "", `{"a":"}`), extent.Part}, {call(0, "", `\"","b":[{}`), extent.Part},
			{call(0, "", `]`), extent.Part}, {call(0, "", `}`), extent.ToolCall}, {text(0, "more"), extent.ToolCall}, {end, extent.Answer},
		}},
		"a call at once":                 {1, []step{{call(0, "c", `{}`), extent.ToolCall}}},
		"a second call ends the first":   {1, []step{{call(0, "c", ""), extent.Part}, {call(1, "d", ""), extent.ToolCall}, {end, extent.Answer}}},
		"a call that is cut off":         {1, []step{{call(0, "c", `{"a":`), extent.Part}, {end, extent.Answer}}},
		"too many brackets do not panic": {1, []step{{call(0, "c", `}}}]]{`), extent.Part}}},
		"choices": {2, []step{
			{text(0, "a"), extent.Part}, {choiceEnd(0, llmv1.Finish_FINISH_STOP), extent.Part}, {text(1, "b"), extent.Part},
			{choiceEnd(1, llmv1.Finish_FINISH_STOP), extent.Answer}, {end, extent.Answer},
		}},
		"a choice with calls": {2, []step{{choiceEnd(1, llmv1.Finish_FINISH_TOOL_CALLS), extent.ToolCall}, {text(0, "a"), extent.ToolCall}}},
	} {
		tracker := extent.Tracker{Choices: test.choices}
		for i, s := range test.steps {
			if got := tracker.Take(s.out); got != s.want {
				t.Errorf("%s, item %d: %s, want %s", name, i, got, s.want)
			}
		}
	}
}

func TestExtentOfAConversationIsThatOfItsTurn(t *testing.T) {
	var tracker extent.Tracker
	begun := &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_Started{Started: &llmv1.Started{}}}
	piece := &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_Delta{Delta: &chatv1.Delta{Text: "a"}}}
	turnEnd := &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_TurnEnd{TurnEnd: &chatv1.TurnEnd{}}}
	for i, step := range []struct {
		out  *chatv1.ConverseResponse
		want extent.Extent
	}{{begun, extent.Nothing}, {piece, extent.Part}, {turnEnd, extent.Answer}, {begun, extent.Nothing}, {piece, extent.Part}} {
		if got := tracker.TakeTurn(step.out); got != step.want {
			t.Errorf("message %d: %s, want %s", i, got, step.want)
		}
	}
}

func TestTextCostsNoAllocation(t *testing.T) {
	tracker, out := extent.Tracker{Choices: 1}, text(0, "a")
	if n := testing.AllocsPerRun(100, func() { tracker.Take(out) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
