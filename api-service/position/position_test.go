package position_test

import (
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/position"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func note(out *chatv1.GenerateResponse) string { return string(position.AppendNote(nil, out)) }

func delta(d *chatv1.Delta) string {
	return note(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: d}})
}

func TestNotesAddUp(t *testing.T) {
	end := &chatv1.ChoiceEnd{Choice: 1, Finish: llmv1.Finish_FINISH_LENGTH, MatchedStop: "x", Tokens: 2}
	got, err := position.Read(2, slices.Values([]string{
		note(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{Model: "m"}}}),
		delta(&chatv1.Delta{Text: "é", Tokens: 2, Ids: []uint32{7, 1 << 20}}),
		delta(&chatv1.Delta{Choice: 1, Reasoning: "hm", Tokens: 1, Ids: []uint32{9}}),
		delta(&chatv1.Delta{Text: "b"}), // a stage held this text back: its token was counted before
		delta(&chatv1.Delta{Tokens: 1, Ids: []uint32{0}, ToolCalls: []*chatv1.ToolCallDelta{{Id: "c", Name: "f"}, {Index: 3, Arguments: `{"a`}}}),
		note(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_ChoiceEnd{ChoiceEnd: end}}),
		delta(&chatv1.Delta{Tokens: 1, Ids: []uint32{5}, ToolCalls: []*chatv1.ToolCallDelta{{Index: 3, Arguments: `":1}`}}}),
	}))
	if err != nil {
		t.Fatal(err)
	}
	if want := (position.Choice{IDs: []uint32{7, 1 << 20, 0, 5}, Text: 3, Arguments: map[uint32]int{0: 0, 3: 7}}); !reflect.DeepEqual(got[0], want) {
		t.Errorf("choice 0: %+v, want %+v", got[0], want)
	}
	if c := got[1]; !slices.Equal(c.IDs, []uint32{9}) || c.Reasoning != 2 || !proto.Equal(c.End, end) {
		t.Errorf("choice 1: %+v", c)
	}
}

func TestAnswerThatCannotBeContinuedExactlyIsRefused(t *testing.T) {
	known := delta(&chatv1.Delta{Text: "a", Tokens: 1, Ids: []uint32{1}})
	for name, bad := range map[string]string{
		"no note":                    "",
		"an unknown kind":            "z",
		"tokens without ids":         delta(&chatv1.Delta{Text: "a", Tokens: 1}),
		"a remainder":                delta(&chatv1.Delta{Text: "a", Tokens: 1, Ids: []uint32{1}, Remainder: true}),
		"a choice that is not there": delta(&chatv1.Delta{Choice: 1, Text: "a", Tokens: 1, Ids: []uint32{1}}),
		"the end of such a choice":   note(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_ChoiceEnd{ChoiceEnd: &chatv1.ChoiceEnd{Choice: 1}}}),
		"a note that is cut":         known[:3],
		"a number that is too large": "d\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\x01",
		"no delta":                   note(&chatv1.GenerateResponse{}),
	} {
		if got, err := position.Read(1, slices.Values([]string{known, bad})); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(delta(&chatv1.Delta{Text: "a", Tokens: 1, Ids: []uint32{1}}))
	f.Add("d\x00\x01\x01\x01\x03\x04\x05")
	f.Add("e\x08\x01")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := position.Read(1, slices.Values([]string{text})); err == nil && (got[0].Text < 0 || got[0].Reasoning < 0) {
			t.Errorf("%+v", got)
		}
	})
}
