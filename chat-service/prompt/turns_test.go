package prompt

import (
	"strings"
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// Templates that treat turns with calls differently. All write results as "role:content|" and calls as
// "<name arguments>".
const (
	callsKept = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.function.name }} {{ c.function.arguments | tojson }}>{% endfor %}|{% endfor %}"
	// callsOnly drops a text beside calls.
	callsOnly = "{% for m in messages %}{{ m.role }}:{% if m.tool_calls %}{% for c in m.tool_calls %}<{{ c.function.name }} {{ c.function.arguments | tojson }}>{% endfor %}{% else %}{{ m.content }}{% endif %}|{% endfor %}"
	// alternate refuses users and assistants that do not alternate, except for calls.
	alternate = "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role != 'tool' and not m.tool_calls %}{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}"
	// oneCall refuses several calls.
	oneCall = "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('single') }}{% endif %}{% endfor %}" + callsKept
	// firstCall writes only the first call.
	firstCall = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.tool_calls %}<{{ m.tool_calls[0].function.name }} {{ m.tool_calls[0].function.arguments | tojson }}>{% endif %}|{% endfor %}"
	// channels takes reasoning in the field thinking, and refuses it beside calls with a text. It drops
	// both before an answer.
	channels = "{% for m in messages %}{% set later = namespace(answer=false) %}{% for l in messages[loop.index:] %}{% if l.role == 'assistant' and not l.tool_calls %}{% set later.answer = true %}{% endif %}{% endfor %}" +
		"{{ m.role }}:{% if not m.tool_calls %}{{ m.content }}{% else %}{% if m.content and m.thinking %}{{ raise_exception('not both') }}{% elif not later.answer %}({{ m.content or m.thinking }}){% endif %}" +
		"<{{ m.tool_calls[0].function.name }} {{ m.tool_calls[0].function.arguments | tojson }}>{% endif %}|{% endfor %}"
)

// turn returns an assistant's turn with calls of f.
func turn(text, reasoning string, ids ...string) *chatv1.Message {
	m := &chatv1.Message{Role: "assistant", Content: text, Reasoning: reasoning}
	for _, id := range ids {
		m.ToolCalls = append(m.ToolCalls, &chatv1.ToolCall{Id: id, Name: "f", Arguments: `{"id": "` + id + `"}`})
	}
	return m
}

func result(id string) *chatv1.Message {
	return &chatv1.Message{Role: "tool", ToolCallId: id, Content: "of " + id}
}

func TestTurnsWithCallsAreShownCompletely(t *testing.T) {
	after := turns("assistant", "A", "user", "B")
	for _, c := range []struct {
		name, source string
		messages     []*chatv1.Message
		want         string
	}{
		{"kept", callsKept, []*chatv1.Message{turn("T", "", "a", "b"), result("a"), result("b")}, `assistant:T<f {"id": "a"}><f {"id": "b"}>|tool:of a|tool:of b|`},
		{"text dropped", callsOnly, []*chatv1.Message{turn("T", "", "a"), result("a")}, `assistant:T|assistant:<f {"id": "a"}>|tool:of a|`},
		{"no text", callsOnly, []*chatv1.Message{turn("", "", "a"), result("a")}, `assistant:<f {"id": "a"}>|tool:of a|`},
		{"text dropped where turns alternate", alternate + callsOnly, []*chatv1.Message{turn("T", "", "a"), result("a"), turn("S", "", "b"), result("b")}, `assistant:T|user:|assistant:<f {"id": "a"}>|tool:of a|assistant:S|user:|assistant:<f {"id": "b"}>|tool:of b|`},
		{"two calls refused", oneCall, []*chatv1.Message{turn("T", "", "a", "b"), result("b"), result("a")}, `assistant:T<f {"id": "a"}>|tool:of a|assistant:<f {"id": "b"}>|tool:of b|`},
		{"the second call dropped", firstCall, []*chatv1.Message{turn("", "", "a", "b"), result("a"), result("b")}, `assistant:<f {"id": "a"}>|tool:of a|assistant:<f {"id": "b"}>|tool:of b|`},
		{"a result without a call", oneCall, []*chatv1.Message{turn("", "", "a", "b"), result("x"), result("a"), result("a")}, `assistant:<f {"id": "a"}>|tool:of a|tool:of a|assistant:<f {"id": "b"}>|tool:of x|`},
		{"text and reasoning refused", channels, []*chatv1.Message{turn("T", "R", "a"), result("a")}, "assistant:(R\n\nT)<f {\"id\": \"a\"}>|tool:of a|"},
		{"a text that is dropped later", channels, append([]*chatv1.Message{turn("T", "R", "a", "b"), result("a"), result("b")}, after...), `assistant:T|assistant:<f {"id": "a"}>|tool:of a|assistant:<f {"id": "b"}>|tool:of b|assistant:A|user:B|`},
	} {
		if got := render(t, c.source, Input{Messages: append(user("u"), c.messages...)}); got != "user:u|"+c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestContentWithoutTextIsEmptyUnlessCallsNeedNone(t *testing.T) {
	call := append(user("u"), turn("", "", "a"), result("a"))
	for source, want := range map[string]string{
		callsKept: `user:u|assistant:<f {"id": "a"}>|tool:of a|`,
		"{% for m in messages %}{% if 'x' in m.content %}!{% endif %}{% endfor %}" + callsKept:                                                                             `user:u|assistant:<f {"id": "a"}>|tool:of a|`,
		strings.ReplaceAll(callsKept, "{{ m.content }}", "{{ m.content | tojson }}"):                                                                                       `user:"u"|assistant:""<f {"id": "a"}>|tool:"of a"|`,
		strings.ReplaceAll(callsKept, "m.tool_calls or []", "(m.tool_calls if m.content is none else [])"):                                                                 `user:u|assistant:None<f {"id": "a"}>|tool:of a|`,
		strings.ReplaceAll(strings.ReplaceAll(callsKept, "m.tool_calls or []", "(m.tool_calls if m.content is none else [])"), "{{ m.content }}", "{{ m.content or '' }}"): `user:u|assistant:<f {"id": "a"}>|tool:of a|`,
	} {
		if got := render(t, source, Input{Messages: call}); got != want {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}

func TestIDsHaveTheFormOfTheTemplate(t *testing.T) {
	const (
		nine  = "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}{{ c.id }}{{ c.function.arguments }} {% endfor %}{{ m.content }}{{ m.tool_call_id }}|{% endfor %}"
		named = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.arguments | tojson }} {% endfor %}{{ m.content }}{{ m.tool_call_id }}|{% endfor %}"
	)
	messages := append(user("u"), turn("", "", "toolu_01", "functions.f:7"), result("functions.f:7"), result("toolu_01"), turn("", "", "toolu_01"), result("toolu_01"))
	for source, want := range map[string]string{
		nine:  `u|7a95b7039{"id": "toolu_01"} 752028b71{"id": "functions.f:7"} |of functions.f:7752028b71|of toolu_017a95b7039|2671a7e21{"id": "toolu_01"} |of toolu_012671a7e21|`,
		named: `u|functions.f:0{"id": "toolu_01"} functions.f:7{"id": "functions.f:7"} |of functions.f:7functions.f:7|of toolu_01functions.f:0|functions.f:2{"id": "toolu_01"} |of toolu_01functions.f:2|`,
	} {
		if got := render(t, source, Input{Messages: messages}); got != want {
			t.Errorf("%s:\n got %q\nwant %q", source, got, want)
		}
	}
}

// A template may refuse calls and write nothing at all: then it shows what it does not refuse.
func TestTemplatesThatWriteNothingAreNotRefused(t *testing.T) {
	for _, source := range []string{
		"{% for m in messages %}{% for c in m.tool_calls|default([]) %}{% if c.id|length != 9 %}{{ raise_exception('nine') }}{% endif %}{% endfor %}{% endfor %}",
		"{% for m in messages %}{% if m.tool_calls is defined and m.tool_calls|length != 1 %}{{ raise_exception('single') }}{% endif %}{% endfor %}",
	} {
		if got := render(t, source, Input{Messages: append(user("u"), turn("T", "R", "call_1234567890", "call_2"), result("call_1234567890"), result("call_2")), Tools: []*chatv1.Tool{weather}}); got != "" {
			t.Errorf("%s: got %q", source, got)
		}
	}
}

func TestReasoningReachesTheTemplateInItsField(t *testing.T) {
	messages := []*chatv1.Message{{Role: "user", Content: "u"}, {Role: "assistant", Content: "A", Reasoning: "R"}, {Role: "user", Content: "v"}}
	for field, source := range map[string]string{
		"reasoning_content": "{{ m.reasoning_content }}", "reasoning": "{{ m.reasoning }}", "thinking": "{% if m.thinking %}{{ m.thinking }}{% endif %}", "tool_plan": "{{ m.tool_plan }}",
	} {
		if got := render(t, "{% for m in messages %}{{ m.content }}["+source+"]{% endfor %}", Input{Messages: messages}); got != "u[]A[R]v[]" {
			t.Errorf("%s: got %q", field, got)
		}
	}
	const parts = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'thinking' %}[{{ p.thinking }}]{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}|{% endfor %}"
	if got := render(t, parts, Input{Messages: messages}); got != "u|[R]A|v|" {
		t.Errorf("as a part of the content: got %q", got)
	}
}

func TestToolsHaveTheFormOfTheTemplate(t *testing.T) {
	const list = "{% for t in tools %}{{ t.function.name + ' ' + t.function.description }} {{ t.function.parameters | tojson }}|{% endfor %}" + callsKept
	if got := render(t, list, Input{Messages: user("u")}); got != "user:u|" {
		t.Errorf("without tools: got %q", got)
	}
	for source, want := range map[string]string{
		"{{ tools | tojson }}" + callsKept: `[]user:u|`,
		"{% for t in tools or [] %}{{ t.function.name }} {{ t.function.get('description') }}|{% endfor %}" + callsKept: "user:u|",
		"{{ 'Tools: ' + functions }}|" + callsKept: "Tools: []|user:u|",
	} {
		if got := render(t, source, Input{Messages: user("u")}); got != want {
			t.Errorf("%s: without tools: got %q, want %q", source, got, want)
		}
	}
	if got := render(t, "{% for t in tools or [] %}{{ t.function.name }} {{ t.function.get('description') }}|{% endfor %}"+callsKept, Input{Messages: user("u"), Tools: []*chatv1.Tool{{Name: "f"}}}); got != "f |user:u|" {
		t.Errorf("a tool without a description, which the template writes as None: got %q", got)
	}
	if got := render(t, "{{ 'Tools: ' + functions }}|"+callsKept, Input{Messages: user("u"), Tools: []*chatv1.Tool{{Name: "f", Description: "d"}}}); got != `Tools: [{"name": "f", "description": "d"}]|user:u|` {
		t.Errorf("tools as a text: got %q", got)
	}
	if got := render(t, list, Input{Messages: user("u"), Tools: []*chatv1.Tool{{Name: "f"}}}); got != `f  {"type": "object", "properties": {}}|user:u|` {
		t.Errorf("a tool without a description: got %q", got)
	}
	template, err := New(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"messages":[{"role":"user","content":"u"}],"tools":[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{}}}}]}`
	if got, err := template.Conversation(t.Context(), Input{Messages: user("u"), Tools: []*chatv1.Tool{{Name: "f"}}}); got != want || err != nil {
		t.Errorf("for an engine that renders it: got %s, %v, want %s", got, err, want)
	}
	const strict = "{% for t in tools or [] %}{% if not t.function.parameters.properties.x %}{{ t.function.name }} {% else %}{{ raise_exception('x') }}{% endif %}{% endfor %}" + anywhere
	if got := render(t, strict, Input{Messages: user("u"), Tools: []*chatv1.Tool{{Name: "f", Parameters: `{"properties":{"x":{"type":"string"}}}`}}}); !strings.HasPrefix(got, "system:"+toolsBefore) {
		t.Errorf("a tool that the template refuses: got %q", got)
	}
	// A template that writes calls and no tools gets them in the system's turn, with a call as it writes calls.
	want = "system:" + toolsBefore + "{\"name\": \"f\"}\n" + toolsAfter + `<… {…}>|user:u|assistant:<f {"id": "a"}>|tool:of a|`
	if got := render(t, callsKept, Input{Messages: append(user("u"), turn("", "", "a"), result("a")), Tools: []*chatv1.Tool{{Name: "f"}}}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A template may write the text of the system into the last turn, if that is the user's.
func TestSystemTextIsShownWhileToolsAreCalled(t *testing.T) {
	const source = "{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}:{% if m.role == 'user' and loop.last and messages[0].role == 'system' %}{{ messages[0].content }}+{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.function.name }} {{ c.function.arguments | tojson }}>{% endfor %}|{% endif %}{% endfor %}"
	conversation := turns("system", "S", "user", "u")
	if got := render(t, source, Input{Messages: conversation}); got != "user:S+u|" {
		t.Errorf("got %q", got)
	}
	if got := render(t, source, Input{Messages: append(conversation, turn("", "", "a"), result("a"))}); got != "user:S\n\nu|assistant:<f {\"id\": \"a\"}>|tool:of a|" {
		t.Errorf("while a tool is called: got %q", got)
	}
}

func TestRefusedTurnsAreGivenUp(t *testing.T) {
	const reasoning = "{% for m in messages %}{% if m.reasoning_content and 'bad' in m.reasoning_content %}{{ raise_exception('no') }}{% endif %}{% endfor %}" + callsKept
	if got := render(t, reasoning, Input{Messages: append(user("u"), turn("", "bad", "a"), result("a"))}); got != `user:u|assistant:<f {"id": "a"}>|tool:of a|` {
		t.Errorf("reasoning: got %q", got)
	}
	const full = "{% for m in messages %}{% if not m.content %}{{ raise_exception('empty') }}{% endif %}{{ m.role }}:{{ m.content }}|{% endfor %}"
	if got := render(t, full, Input{Messages: turns("user", "a", "assistant", "", "user", "b")}); got != "user:a\n\nb|" {
		t.Errorf("an empty turn: got %q", got)
	}
}
