package openai_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// pieces returns the delta or text of each chunk, its finish reason and its usage.
func pieces(t *testing.T, events []string) (all []string) {
	t.Helper()
	for _, event := range events {
		if event == openai.Done {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta  json.RawMessage
				Text   string
				Finish string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt int `json:"prompt_tokens"`
				Answer int `json:"completion_tokens"`
				Total  int `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(event), &chunk); err != nil || len(chunk.Choices) != 1 {
			t.Fatalf("%v: %s", err, event)
		}
		piece := string(chunk.Choices[0].Delta) + chunk.Choices[0].Text
		if chunk.Choices[0].Finish != "" {
			piece += " " + chunk.Choices[0].Finish
		}
		if u := chunk.Usage; u != nil {
			piece += fmt.Sprintf(" %d+%d=%d", u.Prompt, u.Answer, u.Total)
		}
		all = append(all, piece)
	}
	return all
}

const streamed = `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}`

// TestAsManyChunksAsPieces: the role comes with the first piece, and the finish reason with the last
// if it is marked, so load tools that count chunks and take the time of the first one are right.
func TestAsManyChunksAsPieces(t *testing.T) {
	last := &chatv1.Delta{Text: "c", Last: true, Tokens: 1}
	finish := &llmv1.End{Finish: llmv1.Finish_FINISH_LENGTH}
	begun := &llmv1.Started{StreamId: "str-1", Model: "m", PromptTokens: 3}
	const counting = `,"stream_options":{"continuous_usage_stats":true}}`
	for _, c := range []struct {
		body  string
		items []proto.Message
		want  []string
	}{
		{streamed, []proto.Message{started}, nil},
		{streamed, []proto.Message{started, &chatv1.Delta{Text: "a"}, &chatv1.Delta{Text: "b"}, last, finish},
			[]string{`{"role":"assistant","content":"a"}`, `{"content":"b"}`, `{"content":"c"} length`}},
		{streamed, []proto.Message{started, last, finish}, []string{`{"role":"assistant","content":"c"} length`}},
		{streamed, []proto.Message{started, finish}, []string{`{"role":"assistant","content":""} length`}},
		{streamed, []proto.Message{started, &chatv1.Delta{Text: "a"}, finish}, []string{`{"role":"assistant","content":"a"}`, `{} length`}},
		// A worker that sends more than it may.
		{streamed, []proto.Message{started, last, &chatv1.Delta{Text: "d"}, finish}, []string{`{"role":"assistant","content":"c"}`, `{"content":"d"}`, `{} length`}},
		{streamed, []proto.Message{started, &chatv1.Delta{Reasoning: "r"}, &chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Id: "1", Name: "f", Arguments: "{}"}}}, finish},
			[]string{`{"role":"assistant","reasoning_content":"r"}`, `{"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}`, `{} length`}},
		{strings.TrimSuffix(streamed, "}") + counting, []proto.Message{begun, &chatv1.Delta{Text: "a", Tokens: 2}, last, &llmv1.End{Finish: llmv1.Finish_FINISH_STOP, Tokens: 1}},
			[]string{`{"role":"assistant","content":"a"} 3+2=5`, `{"content":"c"} stop 3+4=7`}},
		{strings.TrimSuffix(streamed, "}") + counting, []proto.Message{begun, &chatv1.Delta{Text: "a", Tokens: 2}, finish}, []string{`{"role":"assistant","content":"a"} 3+2=5`, `{} length 3+2=5`}},
		{`{"model":"m","prompt":"x","stream":true` + counting, []proto.Message{begun, &chatv1.Delta{Text: "a", Tokens: 1}, last, finish}, []string{`a 3+1=4`, `c length 3+2=5`}},
	} {
		parse := openai.ParseChat
		if strings.Contains(c.body, `"prompt"`) {
			parse = openai.ParseCompletion
		}
		if got := pieces(t, written(t, c.body, parse, true, items(c.items...)...)); !slices.Equal(got, c.want) {
			t.Errorf("%s\n got %q\nwant %q", c.body, got, c.want)
		}
	}
}

// TestPieceThatWaitsForItsEndIsWrittenBeforeAFailure: no text is lost.
func TestPieceThatWaitsForItsEndIsWrittenBeforeAFailure(t *testing.T) {
	c, err := openai.ParseChat([]byte(streamed), nil)
	if err != nil {
		t.Fatal(err)
	}
	call, lines := c.Call(), &lines{}
	write := call.Events()
	for _, out := range items(started, &chatv1.Delta{Text: "a", Last: true}) {
		write(out, lines)
	}
	if len(lines.all) != 0 {
		t.Fatal(lines.all)
	}
	call.Failure(streamerr.New(streamerr.PeerLost, "lost"), "str-1", lines)
	if len(lines.all) != 2 || !strings.Contains(lines.all[0], `"content":"a"`) || !strings.Contains(lines.all[1], `"error"`) {
		t.Error(lines.all)
	}
}

// TestCallsOfCustomToolsHaveAnInput: the input is extracted from arguments in pieces of any size.
func TestCallsOfCustomToolsHaveAnInput(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,"tools":[{"type":"custom","custom":{"name":"patch"}}]}`
	for arguments, want := range map[string]string{
		`{"input":"a\n\"b\" \u00e9\ud83d\ude00é"}`: `a\n\"b\" é😀é`, ` { "input" : "x" } `: `x`, `{"input":""}`: ``, `{"command":"x"}`: `{\"command\":\"x\"}`, `plain`: `plain`,
		`{"why":"y","input":"x"}`: `x`,
	} {
		for size := 1; size <= len(arguments); size += 3 {
			all := []proto.Message{started, &chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Id: "call_1", Name: "patch"}}}}
			for piece := range slices.Chunk([]rune(arguments), size) {
				all = append(all, &chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Arguments: string(piece)}}})
			}
			all = append(all, &llmv1.End{Finish: llmv1.Finish_FINISH_TOOL_CALLS})
			events := written(t, body, openai.ParseChat, true, items(all...)...)
			if !strings.Contains(events[0], `{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"custom","custom":{"name":"patch","input":""}}]}`) {
				t.Fatal(events[0])
			}
			var input strings.Builder
			for _, event := range events[1:] {
				_, rest, _ := strings.Cut(event, `"custom":{"input":"`)
				piece, _, _ := strings.Cut(rest, `"}}]}`)
				input.WriteString(piece)
			}
			if input.String() != want {
				t.Errorf("%s in pieces of %d: %q, want %q", arguments, size, input.String(), want)
			}
			if got := string(whole(t, body, openai.ParseChat, items(all...)...)); !strings.Contains(got, `"tool_calls":[{"id":"call_1","type":"custom","custom":{"name":"patch","input":"`+want+`"}}]`) {
				t.Error(got)
			}
		}
	}
}

// TestTierIsEchoed: answers to requests with a service_tier name the tier that the stream has got.
func TestTierIsEchoed(t *testing.T) {
	for sent, want := range map[string]string{`,"service_tier":"auto"`: "default", `,"service_tier":"flex"`: "flex", `,"service_tier":"scale"`: "", ``: ""} {
		body := strings.TrimSuffix(streamed, "}") + sent + "}"
		stream := items(started, &chatv1.Delta{Text: "a"}, ended)
		for _, got := range []string{string(whole(t, body, openai.ParseChat, stream...)), written(t, body, openai.ParseChat, true, stream...)[0]} {
			if has := strings.Contains(got, `"service_tier":"`+want+`"`); has != (want != "") || strings.Contains(got, "service_tier") != has {
				t.Errorf("%s: %s", sent, got)
			}
		}
	}
}

// TestOlderFunctionsGetTheOlderForm: functions are called by function_call.
func TestOlderFunctionsGetTheOlderForm(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"x"}],"functions":[{"name":"f"}]}`
	stream := items(started, &chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Id: "1", Name: "f"}}}, &chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Arguments: "{}"}}},
		&llmv1.End{Finish: llmv1.Finish_FINISH_TOOL_CALLS})
	if got := string(whole(t, body, openai.ParseChat, stream...)); !strings.Contains(got, `"content":null,"refusal":null,"function_call":{"name":"f","arguments":"{}"}},"logprobs":null,"finish_reason":"function_call"`) {
		t.Error(got)
	}
	events := written(t, body, openai.ParseChat, true, stream...)
	for i, part := range []string{`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":""}}`, `"delta":{"function_call":{"arguments":"{}"}}`, `"finish_reason":"function_call"`} {
		if !strings.Contains(events[i], part) {
			t.Errorf("event %d is %s, without %s", i, events[i], part)
		}
	}
}
