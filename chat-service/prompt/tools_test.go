package prompt

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var weather = &chatv1.Tool{
	Name: "get_weather", Description: "What the sky does",
	Parameters: `{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"integer","default":3.0}},"required":["z"]}`,
}

// asked returns a conversation with a tool call.
func asked() []*chatv1.Message {
	return []*chatv1.Message{
		{Role: "user", Content: "Rain?"},
		{Role: "assistant", Reasoning: "Let me see.", ToolCalls: []*chatv1.ToolCall{{Id: "call_1", Name: "get_weather", Arguments: `{"z": "Oslo", "a": 1}`}}},
		{Role: "tool", ToolCallId: "call_1", Content: "no"},
	}
}

func render(t *testing.T, source string, in Input) string {
	t.Helper()
	template, err := New(source, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := template.Render(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTemplateSeesToolsInTheirOrder(t *testing.T) {
	got := render(t, "{% for t in tools %}{{ t | tojson }}{% endfor %}", Input{Messages: user("x"), Tools: []*chatv1.Tool{weather}})
	want := `{"type": "function", "function": {"name": "get_weather", "description": "What the sky does", "parameters": ` +
		`{"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer", "default": 3.0}}, "required": ["z"]}}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := render(t, "{{ tools is none }}", Input{Messages: user("x")}); got != "True" {
		t.Errorf("without tools, none is %s", got)
	}
}

func TestCallsHaveTheFormOfTransformers(t *testing.T) {
	const source = "{% for m in messages %}{{ m.role }} {{ m.content is none }} {{ m.reasoning_content }} {{ m.tool_call_id }} " +
		"{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}|{% endfor %}"
	want := "user False   |assistant False Let me see.  " +
		`{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": {"z": "Oslo", "a": 1}}}` +
		"|tool False  call_1 |"
	if got := render(t, source, Input{Messages: asked()}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTemplateThatJoinsArgumentsGetsThemAsText(t *testing.T) {
	const source = "{% for m in messages %}{% for c in m.tool_calls %}{{ '>' + c.function.arguments }}{% endfor %}{% endfor %}"
	if got := render(t, source, Input{Messages: asked()}); got != `>{"z": "Oslo", "a": 1}` {
		t.Error(got)
	}
}

func TestVariablesReachTheTemplate(t *testing.T) {
	const source = "{{ enable_thinking is defined and not enable_thinking }}"
	if got := render(t, source, Input{Messages: user("x"), Variables: `{"enable_thinking":false}`}); got != "True" {
		t.Error(got)
	}
}

func TestVariablesAreNotFunctionsOfTheTemplate(t *testing.T) {
	template, err := New("{% if messages[0].content == 'x' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"raise_exception", "namespace", "range", "dict", "joiner"} {
		_, err := template.Render(t.Context(), Input{Messages: user("y"), Variables: `{"` + name + `":1}`})
		if e, ok := errors.AsType[*streamerr.Error](err); !ok || e.Reason != streamerr.Invalid || e.Param != "template_variables" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestTemplateWithoutToolsGetsHermesFormat(t *testing.T) {
	template, err := Load(whencetiny.FS())
	if err != nil {
		t.Fatal(err)
	}
	messages := append([]*chatv1.Message{{Role: "system", Content: "Be kind."}}, asked()...)
	messages = append(messages, &chatv1.Message{Role: "tool", ToolCallId: "call_2", Content: "not yet"})
	got, err := template.Render(t.Context(), Input{Messages: messages, Tools: []*chatv1.Tool{weather}, AddGenerationPrompt: true})
	want := "<|im_start|>system\nBe kind.\n\n" + toolsBefore + `{"name": "get_weather", "description": "What the sky does", "parameters": ` +
		weather.GetParameters() + "}\n" + toolsAfter + hermesCall + "<|im_end|>\n" +
		"<|im_start|>user\nRain?<|im_end|>\n" +
		"<|im_start|>assistant\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"z\": \"Oslo\", \"a\": 1}}\n</tool_call><|im_end|>\n" +
		"<|im_start|>user\n<tool_response>\nno\n</tool_response>\n<tool_response>\nnot yet\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
	if err != nil || got != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

// TestDroppedCallsHaveTheFormOfTheModel covers templates such as LFM2's, which write tools and results
// of calls, but no calls.
func TestDroppedCallsHaveTheFormOfTheModel(t *testing.T) {
	template, err := New("{{ tools }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}", nil)
	if err != nil {
		t.Fatal(err)
	}
	template.Around = func(tool string) (string, string) { return "<call>" + tool + ":", "</call>" }
	in := Input{Messages: append(user("x"),
		&chatv1.Message{Role: "assistant", Content: "I look.", ToolCalls: []*chatv1.ToolCall{{Id: "1", Name: "f", Arguments: `{"a": 1}`}}},
		&chatv1.Message{Role: "tool", ToolCallId: "1", Content: "y"})}
	got, err := template.Render(t.Context(), in)
	if want := "[user]x[assistant]I look.\n<call>f:{\"a\": 1}</call>[tool]y"; err != nil || !strings.HasSuffix(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// A request may have a hundred thousand results. Joining them one by one took a minute.
func TestManyResultsOfToolsAreJoinedAtOnce(t *testing.T) {
	in := Input{Messages: asked()}
	for range 5000 {
		in.Messages = append(in.Messages, &chatv1.Message{Role: "tool", Content: "x"})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	joined := spelled(in.Messages, nil, false)
	runtime.ReadMemStats(&after)
	if made, length := after.TotalAlloc-before.TotalAlloc, len(joined[len(joined)-1].GetContent()); made > uint64(20*length) {
		t.Errorf("%d bytes were made for a turn of %d", made, length)
	}
}

func TestReasoningStaysWithItsCalls(t *testing.T) {
	const source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.reasoning_content }}|{{ m.content }}<|im_end|>{% endfor %}"
	got := render(t, source, Input{Messages: append(user("x"), &chatv1.Message{
		Role: "assistant", Reasoning: "hm", ToolCalls: []*chatv1.ToolCall{{Name: "f", Arguments: "{}"}},
	})})
	if want := "<|im_start|>assistant\nhm|<tool_call>"; !strings.Contains(got, want) {
		t.Errorf("%q has no %q", got, want)
	}
}

func TestBadToolsAreRefusedByName(t *testing.T) {
	template, err := New("{{ tools }}", nil)
	if err != nil {
		t.Fatal(err)
	}
	call := func(role string, c *chatv1.ToolCall) Input {
		return Input{Messages: append(user("x"), &chatv1.Message{Role: role, ToolCalls: []*chatv1.ToolCall{c}})}
	}
	tools := func(tools ...*chatv1.Tool) Input { return Input{Messages: user("x"), Tools: tools} }
	for param, in := range map[string]Input{
		"tools":                        tools(make([]*chatv1.Tool, maxTools+1)...),
		"tools[0].name":                tools(&chatv1.Tool{Name: "no spaces"}),
		"tools[1].name":                tools(&chatv1.Tool{Name: "a"}, &chatv1.Tool{Name: "a"}),
		"tools[0].description":         tools(&chatv1.Tool{Name: "a", Description: "\xff"}),
		"tools[0].parameters":          tools(&chatv1.Tool{Name: "a", Parameters: `{"a":`}),
		"tools[1].parameters":          tools(&chatv1.Tool{Name: "a"}, &chatv1.Tool{Name: "b", Parameters: strings.Repeat("[", 200)}),
		"messages[1].tool_calls":       call("user", &chatv1.ToolCall{Name: "a"}),
		"messages[1].tool_calls[0].id": call("assistant", &chatv1.ToolCall{Id: "\xff", Name: "a", Arguments: "{}"}),
		"template_variables":           {Messages: user("x"), Variables: `{"messages":[]}`},
	} {
		_, err := template.Render(t.Context(), in)
		if e, ok := errors.AsType[*streamerr.Error](err); !ok || e.Reason != streamerr.Invalid || e.Param != param {
			t.Errorf("%s: got %v", param, err)
		}
	}
	for size, ok := range map[int]bool{128: true, 129: false} {
		if _, err := template.Render(t.Context(), tools(&chatv1.Tool{Name: strings.Repeat("n", size)})); (err == nil) != ok {
			t.Errorf("a name of %d characters: %v", size, err)
		}
	}
}
