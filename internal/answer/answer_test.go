package answer

import (
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

func TestDeltasAreJoined(t *testing.T) {
	var a Answer
	for _, d := range []*chatv1.Delta{
		{Reasoning: "h"}, {Reasoning: "m", Text: "a"}, {Text: "b"},
		{ToolCalls: []*chatv1.ToolCallDelta{{Id: "1", Name: "f", Arguments: "{"}}},
		{ToolCalls: []*chatv1.ToolCallDelta{{Arguments: "}"}, {Index: 1, Id: "2", Name: "g"}}},
		{ToolCalls: []*chatv1.ToolCallDelta{{Index: 1, Arguments: "{}"}, {Index: 7, Arguments: "of nobody"}}},
	} {
		a.Add(d)
	}
	calls := a.Calls()
	if a.Text() != "ab" || a.Reasoning() != "hm" || len(calls) != 2 ||
		calls[0].GetName() != "f" || calls[0].GetArguments() != "{}" || calls[1].GetId() != "2" || calls[1].GetArguments() != "{}" {
		t.Error(a.Text(), a.Reasoning(), calls)
	}
}
