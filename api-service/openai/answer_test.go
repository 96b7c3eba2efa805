package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

var (
	started = &llmv1.Started{StreamId: "str-1", Model: "m"}
	ended   = &llmv1.End{Finish: llmv1.Finish_FINISH_LENGTH, Usage: &llmv1.Usage{PromptTokens: 3, CompletionTokens: 4, CachedTokens: new(uint32(0))}}
)

// chunk has the fields that OpenAI's schema requires, and no others: decoding is strict.
type chunk struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []struct {
		Index        *int            `json:"index"`
		Delta        json.RawMessage `json:"delta"`
		LogProbs     json.RawMessage `json:"logprobs"`
		FinishReason *string         `json:"finish_reason"`
	} `json:"choices"`
	Usage json.RawMessage `json:"usage"`
}

func parse(t *testing.T, b []byte) chunk {
	t.Helper()
	var c chunk
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if c.ID != "chatcmpl-str-1" || c.Object != "chat.completion.chunk" || c.Model != "m" || c.Created == 0 || c.Choices == nil {
		t.Errorf("%s", b)
	}
	return c
}

func TestChunksHaveTheFormThatSDKsExpect(t *testing.T) {
	for _, usage := range []bool{false, true} {
		c := openai.NewChunks(started, usage)
		for _, step := range []struct {
			data          []byte
			delta, finish string
		}{
			{c.AppendDelta(nil, &chatv1.Delta{Text: "a\"\n😀"}), `{"content":"a\"\n😀"}`, ""},
			{c.AppendFinish(nil, 0, ended.GetFinish()), `{}`, "length"},
		} {
			got := parse(t, step.data)
			if len(got.Choices) != 1 || string(got.Choices[0].Delta) != step.delta || *got.Choices[0].Index != 0 {
				t.Errorf("%s", step.data)
			}
			if f := got.Choices[0].FinishReason; (f == nil) != (step.finish == "") || f != nil && *f != step.finish {
				t.Errorf("%s", step.data)
			}
			if (string(got.Usage) == "null") != usage {
				t.Errorf("usage %t: %s", usage, step.data)
			}
		}
		if !usage {
			continue
		}
		last := c.AppendUsage(nil, ended)
		got := parse(t, last)
		if len(got.Choices) != 0 || string(got.Usage) != `{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0}}` {
			t.Errorf("%s", last)
		}
	}
}

const hi = `{"model":"m","messages":[{"role":"user","content":"x"}]}`

func TestCompletionHasTheRequiredFields(t *testing.T) {
	var got map[string]any
	if err := json.Unmarshal(whole(t, hi, openai.ParseChat, items(started, &chatv1.Delta{Text: "te"}, &chatv1.Delta{Text: "xt"}, ended)...), &got); err != nil {
		t.Fatal(err)
	}
	choice, _ := got["choices"].([]any)[0].(map[string]any)
	message, _ := choice["message"].(map[string]any)
	if got["object"] != "chat.completion" || choice["finish_reason"] != "length" || message["content"] != "text" || message["role"] != "assistant" {
		t.Error(got)
	}
	for _, name := range []string{"refusal"} {
		if _, ok := message[name]; !ok {
			t.Errorf("message lacks %s", name)
		}
	}
	if _, ok := choice["logprobs"]; !ok {
		t.Error("choice lacks logprobs")
	}
}

func TestAnswersHaveReasoningAndToolCalls(t *testing.T) {
	reasoned := proto.CloneOf(ended)
	reasoned.Finish, reasoned.Usage.ReasoningTokens = llmv1.Finish_FINISH_TOOL_CALLS, proto.Uint32(2)
	deltas := []*chatv1.Delta{
		{Reasoning: "h\"m"}, {ToolCalls: []*chatv1.ToolCallDelta{{Id: "call_1", Name: "f", Arguments: "{"}}},
		{ToolCalls: []*chatv1.ToolCallDelta{{Arguments: "}"}, {Index: 1, Id: "call_2", Name: "g", Arguments: "{}"}}},
	}
	c := openai.NewChunks(started, false)
	for i, want := range []string{
		`{"reasoning_content":"h\"m"}`,
		`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":"{"}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":1,"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]}`,
	} {
		if got := parse(t, c.AppendDelta(nil, deltas[i])); string(got.Choices[0].Delta) != want {
			t.Errorf("got  %s\nwant %s", got.Choices[0].Delta, want)
		}
	}
	if got := parse(t, c.AppendDelta(nil, &chatv1.Delta{Text: "a", Reasoning: "b"})); string(got.Choices[0].Delta) != `{"reasoning_content":"b","content":"a"}` {
		t.Errorf("%s", got.Choices[0].Delta)
	}
	var got struct {
		Choices []struct {
			Message      json.RawMessage
			FinishReason string `json:"finish_reason"`
		}
		Usage json.RawMessage
	}
	all := []proto.Message{started}
	for _, d := range deltas {
		all = append(all, d)
	}
	if err := json.Unmarshal(whole(t, hi, openai.ParseChat, items(append(all, reasoned)...)...), &got); err != nil {
		t.Fatal(err)
	}
	want := `{"role":"assistant","content":null,"refusal":null,"reasoning_content":"h\"m","tool_calls":[` +
		`{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]}`
	if string(got.Choices[0].Message) != want || got.Choices[0].FinishReason != "tool_calls" {
		t.Errorf("got  %s\nwant %s", got.Choices[0].Message, want)
	}
	if string(got.Usage) != `{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":2}}` {
		t.Errorf("%s", got.Usage)
	}
}

func TestModelsListIsNeverNull(t *testing.T) {
	if got := string(openai.Models(nil)); got != `{"object":"list","data":[]}` {
		t.Error(got)
	}
	if got := string(openai.Model(&chatv1.Model{Id: "m", Created: 5, OwnedBy: "o", ContextLength: 9})); got != `{"id":"m","object":"model","created":5,"owned_by":"o","context_length":9,"max_model_len":9,"workers":{"healthy":0,"known":0}}` {
		t.Error(got)
	}
	for want, template := range map[string]*chatv1.ChatTemplate{
		`{"system":[],"calls":false}`: {}, `{"system":[],"calls":false,"efforts":[]}`: {LimitsEfforts: true},
		`{"system":[],"calls":true,"tools":true,"text_arguments":true,"no_content":true,"ids":"nine","reasoning":"thinking","one_call":true,"text":{"latest":"turn","earlier_reasoned":"user"},"written_call":"c","written_reasoning":"r","tool_format":"hermes","tool_problem":"p","reasoning_tags":["[t]","[/t]"]}`: {
			Calls: true, Tools: true, TextArguments: true, NoContent: true, Ids: "nine", Reasoning: "thinking", OneCall: true, WrittenCall: "c", WrittenReasoning: "r",
			ToolFormat: "hermes", ToolProblem: "p", ReasoningTags: []string{"[t]", "[/t]"},
			Text: &chatv1.TextBesideCalls{Latest: "turn", EarlierReasoned: "user"},
		},
		`{"system":["first"],"developer":["first"],"calls":true,"images":["user"],"efforts":["low"],"switches":["thinking"]}`: {
			System: []string{"first"}, Developer: []string{"first"}, Calls: true, Images: []string{"user"}, Efforts: []string{"low"}, LimitsEfforts: true, Switches: []string{"thinking"},
		},
	} {
		if got := string(openai.Model(&chatv1.Model{Id: "m", Template: template})); !strings.HasSuffix(got, `,"template":`+want+"}") {
			t.Errorf("%s, want the template %s", got, want)
		}
	}
}

func FuzzDeltaIsJSON(f *testing.F) {
	f.Add("a\"\\\x00\x1f\x7f\u2028é😀\xff")
	f.Fuzz(func(t *testing.T, s string) {
		var got struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		data := openai.NewChunks(started, false).AppendDelta(nil, &chatv1.Delta{Text: s})
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("%q: %s: %v", s, data, err)
		}
		want, _ := json.Marshal(s)
		var clean string
		_ = json.Unmarshal(want, &clean) // invalid UTF-8 has become U+FFFD
		if got.Choices[0].Delta.Content != clean {
			t.Errorf("%q became %q", clean, got.Choices[0].Delta.Content)
		}
		for _, c := range data {
			if c < ' ' {
				t.Errorf("%q has a control character, which would break the event", data)
			}
		}
	})
}

func BenchmarkDelta(b *testing.B) {
	c, delta := openai.NewChunks(started, true), &chatv1.Delta{Text: " token"}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = c.AppendDelta(buf[:0], delta)
	}
}
