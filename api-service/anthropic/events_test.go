package anthropic_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/call/calltest"
	"github.com/whence-dev/whence/api-service/edge/sse"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// blocksOf returns the content blocks of a stream, each as its type and its joined deltas. It fails
// the test if a delta does not belong to the open block.
func blocksOf(t *testing.T, items ...*chatv1.GenerateResponse) []string {
	t.Helper()
	lines := sse.Encoder{Identity: true}
	write := parser.Parse(t, "{"+hi+`,"stream":true}`).Events()
	for _, out := range append([]*chatv1.GenerateResponse{begin}, items...) {
		write(out, &lines)
	}
	encoded, _ := lines.Take()
	var all []string
	open := ""
	for line := range strings.Lines(string(encoded)) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var event struct {
			Type  string
			Index int
			Block struct{ Type string } `json:"content_block"`
			Delta struct {
				Type, Text, Thinking string
				PartialJSON          string `json:"partial_json"`
			}
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			t.Fatal(err)
		}
		if of := map[string]string{"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "tool_use"}[event.Delta.Type]; of != "" && of != open {
			t.Errorf("a %s in a block of the type %q: %s", event.Delta.Type, open, data)
		}
		switch event.Type {
		case "content_block_start":
			open, all = event.Block.Type, append(all, event.Block.Type+": ")
		case "content_block_delta":
			all[len(all)-1] += event.Delta.Text + event.Delta.Thinking + event.Delta.PartialJSON
		case "content_block_stop":
			open = ""
		}
		if strings.HasPrefix(event.Type, "content_block") && event.Index != len(all)-1 {
			t.Errorf("the index of block %d is %d: %s", len(all)-1, event.Index, data)
		}
	}
	return all
}

func TestPiecesOfOneDeltaGoIntoTheirBlocks(t *testing.T) {
	first := &chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Id: "a", Name: "f", Arguments: `{"x":1`}}}
	rest := &chatv1.ToolCallDelta{Arguments: "}"}
	second := &chatv1.ToolCallDelta{Index: 1, Id: "b", Name: "g", Arguments: "{}"}
	for name, test := range map[string]struct {
		deltas []*chatv1.Delta
		want   []string
	}{
		"arguments and text":      {[]*chatv1.Delta{first, {Text: "x", ToolCalls: []*chatv1.ToolCallDelta{rest}}}, []string{`tool_use: {"x":1}`, "text: x"}},
		"arguments and reasoning": {[]*chatv1.Delta{first, {Reasoning: "x", ToolCalls: []*chatv1.ToolCallDelta{rest}}}, []string{`tool_use: {"x":1}`, "thinking: x"}},
		"arguments, reasoning, text and a new call": {
			[]*chatv1.Delta{first, {Reasoning: "x", Text: "y", ToolCalls: []*chatv1.ToolCallDelta{rest, second}}},
			[]string{`tool_use: {"x":1}`, "thinking: x", "text: y", "tool_use: {}"},
		},
		"text before a call":           {[]*chatv1.Delta{{Text: "x", ToolCalls: []*chatv1.ToolCallDelta{second}}}, []string{"text: x", "tool_use: {}"}},
		"arguments of a closed block":  {[]*chatv1.Delta{first, {Text: "x"}, {ToolCalls: []*chatv1.ToolCallDelta{rest}}}, []string{`tool_use: {"x":1`, "text: x"}},
		"arguments of an earlier call": {[]*chatv1.Delta{first, {ToolCalls: []*chatv1.ToolCallDelta{rest, second, rest}}}, []string{`tool_use: {"x":1}`, "tool_use: {}"}},
		"white space between calls":    {[]*chatv1.Delta{first, {Text: "\n", ToolCalls: []*chatv1.ToolCallDelta{rest, second}}, {Text: "\n"}}, []string{`tool_use: {"x":1}`, "tool_use: {}"}},
		"white space within a call":    {[]*chatv1.Delta{first, {Text: "\n"}, {ToolCalls: []*chatv1.ToolCallDelta{rest}}}, []string{`tool_use: {"x":1}`}},
		"white space before a call":    {[]*chatv1.Delta{{Reasoning: "x"}, {Text: "\n\n"}, first, {ToolCalls: []*chatv1.ToolCallDelta{rest}}}, []string{"thinking: x", `tool_use: {"x":1}`}},
		"white space before text":      {[]*chatv1.Delta{first, {ToolCalls: []*chatv1.ToolCallDelta{rest}}, {Text: "\n"}, {Text: " "}, {Text: "x"}, {Text: " "}}, []string{`tool_use: {"x":1}`, "text: \n x "}},
		"white space alone":            {[]*chatv1.Delta{{Text: "\n"}, {Text: "\t"}}, []string{"text: \n\t"}},
	} {
		items := make([]*chatv1.GenerateResponse, 0, len(test.deltas)+1)
		for _, d := range test.deltas {
			items = append(items, calltest.Delta(d))
		}
		if got := blocksOf(t, append(items, calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_TOOL_CALLS}))...); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestAnAnswerWithCallsHasNoBlockOfWhiteSpace(t *testing.T) {
	for name, test := range map[string]struct {
		calls []*chatv1.ToolCallDelta
		want  string
	}{
		"beside a call": {[]*chatv1.ToolCallDelta{{Id: "a", Name: "f", Arguments: "{}"}}, `"content":[{"type":"tool_use",`},
		"alone":         {nil, `"content":[{"type":"text","text":"\n"}]`},
	} {
		gather := parser.Parse(t, "{"+hi+"}").Whole()
		gather(begin)
		gather(calltest.Delta(&chatv1.Delta{Text: "\n", ToolCalls: test.calls}))
		if got := gather(calltest.End(&llmv1.End{})); !strings.Contains(string(got), test.want) {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
