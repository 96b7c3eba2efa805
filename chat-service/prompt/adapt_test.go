package prompt

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/imagenote"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Templates that treat system texts differently. All write turns as "role:content|".
const (
	anywhere = "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}"
	// first refuses later ones.
	first = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('at the beginning') }}{% endif %}{{ m.role }}:{{ m.content }}|{% endfor %}"
	// leading drops later ones, and knows developers.
	leading = "{% if messages[0].role in ('system', 'developer') %}{{ messages[0].role }}:{{ messages[0].content }}|{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}" +
		"{% for m in rest %}{% if m.role in ('user', 'assistant') %}{{ m.role }}:{{ m.content }}|{% endif %}{% endfor %}"
	// never refuses all, and turns that do not alternate.
	never = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('not supported') }}{% endif %}" +
		"{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}{{ m.role }}:{{ m.content }}|{% endfor %}"
	// lastWins writes only the last system text.
	lastWins = "{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}{% set ns.s = m.content %}{% endif %}{% endfor %}system:{{ ns.s }}|" +
		"{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}:{{ m.content }}|{% endif %}{% endfor %}"
)

func TestSystemTextsAreNeverLost(t *testing.T) {
	for _, c := range []struct {
		name, source string
		messages     []*chatv1.Message
		want         string
	}{
		{"as turns", anywhere, turns("system", "A", "system", "B", "user", "x", "system", "C", "user", "y"), "system:A|system:B|user:x|system:C|user:y|"},
		{"developers as the system", anywhere, turns("developer", "A", "user", "x", "developer", "B"), "system:A|user:x|system:B|"},
		{"refused later", first, turns("system", "A", "user", "x", "assistant", "z", "system", "B", "user", "y"), "system:A\n\nB|user:x|assistant:z|user:y|"},
		{"refused later, without a first", first, turns("user", "x", "system", "B"), "system:B|user:x|"},
		{"refused twice", first, turns("system", "A", "system", "B", "user", "x"), "system:A\n\nB|user:x|"},
		{"dropped later", leading, turns("system", "A", "user", "x", "developer", "B", "user", "y"), "system:A\n\nB|user:x|user:y|"},
		{"dropped twice", leading, turns("system", "A", "system", "B", "user", "y"), "system:A\n\nB|user:y|"},
		{"a developer", leading, turns("developer", "A", "user", "y"), "developer:A|user:y|"},
		{"a later developer", leading, turns("user", "x", "developer", "B", "user", "y"), "developer:B|user:x|user:y|"},
		{"developer, system and later", leading, turns("developer", "A", "system", "C", "user", "x", "system", "B"), "developer:A\n\nC\n\nB|user:x|"},
		{"no system", never, turns("system", "A", "user", "x", "assistant", "z", "system", "B", "user", "y"), "user:A\n\nB\n\nx|assistant:z|user:y|"},
		{"no system, and no turn between", never, turns("system", "A", "user", "x", "developer", "B", "user", "y"), "user:A\n\nB\n\nx\n\ny|"},
		{"the system alone", never, turns("system", "A"), "user:A|"},
		{"the last one wins", lastWins, turns("system", "A", "user", "x", "system", "B", "user", "y"), "system:A\n\nB|user:x|user:y|"},
	} {
		before := len(c.messages[0].GetContent())
		if got := render(t, c.source, Input{Messages: c.messages}); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if len(c.messages[0].GetContent()) != before {
			t.Errorf("%s: the message was changed", c.name)
		}
	}
}

func TestTraitsOfATemplate(t *testing.T) {
	everywhere := Places{First: true, Leading: true, Later: true}
	for source, want := range map[string]Traits{
		anywhere: {System: everywhere, Results: true},
		first:    {System: Places{First: true}, Results: true},
		leading:  {System: Places{First: true}, Developer: Places{First: true}},
		never:    {},
		vision:   {System: everywhere, Results: true, ChatML: true, ImageRoles: []string{"assistant", "tool", "user"}},
		// A template that searches the content of a call, and places images in results only of calls.
		"{# image #}{% for m in messages %}{% if 'x' in m.content %}{% endif %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{{ c.text or '<image>' }}{% endfor %}{% endif %}{{ m.tool_calls }}{% endfor %}": {
			System: everywhere, Results: true, Calls: true, CallsAlone: true, Form: Form{TextArguments: true}, ImageRoles: []string{"assistant", "tool", "user"},
		},
		// A template that shows nothing of a conversation is left alone.
		"{{ messages[0].role }}": {System: everywhere, Tools: true, Calls: true, CallsAlone: true, Results: true},
		anywhere + "{% if not enable_thinking %}<think></think>{% endif %}":                         {System: everywhere, Results: true, Switches: []string{"enable_thinking"}},
		anywhere + "{% if reasoning_effort == 'max' %}{{ raise_exception('no') }}{% endif %}":       {System: everywhere, Results: true, Efforts: ladder[:6]},
		anywhere + "{% if reasoning_effort is defined %}{{ raise_exception('no') }}{% endif %}":     {System: everywhere, Results: true, Efforts: []string{}},
		anywhere + "{% for m in messages %}{{ m.tool_calls }}{% endfor %}":                          {System: everywhere, Results: true, Calls: true, CallsAlone: true, Form: Form{TextArguments: true}},
		anywhere + "{% for m in messages %}{% if tools %}{{ m.tool_calls }}{% endif %}{% endfor %}": {System: everywhere, Results: true, Calls: true, Form: Form{TextArguments: true}},
	} {
		template, err := New(source, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := template.Traits()
		got.Written = Samples{} // has a test of its own
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", source, got, want)
		}
	}
}

// A model or a tool may have written anything, and must not end its session.
func TestOddCallsAreShown(t *testing.T) {
	const (
		object = "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}{{ m.tool_call_id }}|{% endfor %}"
		text   = "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.id + ' ' + c.function.name + ' ' + c.function.arguments }}{% endfor %}{{ m.tool_call_id }}|{% endfor %}"
	)
	for arguments, want := range map[string]struct{ object, text string }{
		`{"a":1}`:                      {`{"a": 1}`, `{"a":1}`},
		``:                             {`{}`, `{}`},
		" ":                            {`{}`, `{}`},
		`{"city": "Par`:                {`{"INVALID_JSON": "{\"city\": \"Par"}`, `{"city": "Par`},
		`[1]`:                          {`{"INVALID_JSON": "[1]"}`, `[1]`},
		`"x"`:                          {`{"INVALID_JSON": "\"x\""}`, `"x"`},
		`null`:                         {`{"INVALID_JSON": "null"}`, `null`},
		`{} {}`:                        {`{"INVALID_JSON": "{} {}"}`, `{} {}`},
		`{"a":1,"a":2}`:                {`{"INVALID_JSON": "{\"a\":1,\"a\":2}"}`, `{"a":1,"a":2}`},
		`{"a":NaN}`:                    {`{"INVALID_JSON": "{\"a\":NaN}"}`, `{"a":NaN}`},
		"{\"a\":\"\x00\"}":             {`{"a": "` + "\uFFFD" + `"}`, "{\"a\":\"\uFFFD\"}"},
		`{"a":"\u0000"}`:               {`{"a": "` + "\uFFFD" + `"}`, `{"a":"\u0000"}`},
		`{"INVALID_JSON":"[1]"}`:       {`{"INVALID_JSON": "[1]"}`, `[1]`},
		`{"INVALID_JSON":"{\"a\":1}"}`: {`{"a": 1}`, `{"a":1}`},
		`{"INVALID_JSON":"{\"INVALID_JSON\":\"[1]\"}"}`: {`{"INVALID_JSON": "[1]"}`, `[1]`},
	} {
		messages := []*chatv1.Message{
			{Role: "user", Content: "x"}, {Role: "assistant", ToolCalls: []*chatv1.ToolCall{{Id: "c", Name: "f", Arguments: arguments}}}, {Role: "tool", ToolCallId: "c", Content: "y"},
		}
		for source, want := range map[string]string{object: want.object, text: want.text} {
			if got := render(t, source, Input{Messages: messages}); got != "x|c f "+want+"|yc|" {
				t.Errorf("%q: got %q, want %q", arguments, got, want)
			}
		}
		hermes := render(t, "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}{% endfor %}", Input{Messages: messages})
		if !strings.Contains(hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {") {
			t.Errorf("%q: %q", arguments, hermes)
		}
	}
}

func TestCallsWithoutIDsGetSome(t *testing.T) {
	const source = "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}{{ c.function.arguments }} {% endfor %}{{ m.tool_call_id }}|{% endfor %}"
	call := func(ids ...string) *chatv1.Message {
		m := &chatv1.Message{Role: "assistant"}
		for _, id := range ids {
			m.ToolCalls = append(m.ToolCalls, &chatv1.ToolCall{Id: id, Name: "f", Arguments: "{}"})
		}
		return m
	}
	result := func(id string) *chatv1.Message { return &chatv1.Message{Role: "tool", ToolCallId: id} }
	const strictIDs = "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}{% endfor %}{% endfor %}"
	for _, c := range []struct {
		name, source string
		messages     []*chatv1.Message
		want         string
	}{
		{"none", source, []*chatv1.Message{call("", ""), result(""), result("")}, "call_1f{} call_2f{} |call_1|call_2|"},
		{"some", source, []*chatv1.Message{call("a", "call_1", ""), result("a"), result(""), result("call_2")}, "af{} call_1f{} call_2f{} |a|call_1|call_2|"},
		{"twice", source, []*chatv1.Message{call("a", "a"), result("a")}, "af{} af{} |a|"},
		{"without a call", source, []*chatv1.Message{call("a"), result("a"), result(""), result("z")}, "af{} |a|call_1|z|"},
		{"of later turns", source, []*chatv1.Message{call(""), result(""), call(""), result("")}, "call_1f{} |call_1|call_2f{} |call_2|"},
		{"the same in two turns", source, []*chatv1.Message{call("a", "b"), result("a"), result("b"), call("a"), result("a"), call("a"), result("a"), result("b")}, "af{} bf{} |a|b|a_2f{} |a_2|a_3f{} |a_3|b|"},
		{"too long", source + strictIDs, []*chatv1.Message{call("toolu_01"), result("toolu_01"), call("abcdef123"), result("abcdef123")}, "7a95b7039f{} |7a95b7039|abcdef123f{} |abcdef123|"},
	} {
		if got := render(t, c.source, Input{Messages: append(user("u"), c.messages...)}); got != "u|"+c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// Templates that refuse a conversation get it in the plainest form.
func TestRefusedConversationIsMadePlain(t *testing.T) {
	const source = never + "{# tool_calls #}"
	call := &chatv1.Message{Role: "assistant", ToolCalls: []*chatv1.ToolCall{{Id: "a", Name: "f", Arguments: "{}"}}}
	for _, c := range []struct {
		name     string
		messages []*chatv1.Message
		want     string
	}{
		{"two turns", turns("user", "a", "user", "b"), "user:a\n\nb|"},
		{"an assistant first", turns("assistant", "a", "user", "b"), "user:|assistant:a|user:b|"},
		{"a result without a call", turns("user", "a", "tool", "r", "user", "b"), "user:a\n\n<tool_response>\nr\n</tool_response>\n\nb|"},
		{"a call and its result", append(user("a"), call, &chatv1.Message{Role: "tool", ToolCallId: "a", Content: "r"}), "user:a|assistant:<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>|user:<tool_response>\nr\n</tool_response>|"},
		{"assistants without content", turns("user", "a", "assistant", "", "user", "b"), "user:a|assistant:|user:b|"},
	} {
		if got := render(t, source, Input{Messages: c.messages}); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNULBecomesAReplacement(t *testing.T) {
	const source = "{% for t in tools or [] %}{{ t.function.name }}{{ t.function.description }}{{ t.function.parameters.d }}|{% endfor %}{{ v }}|{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.name }}{{ m.tool_call_id }}|{% endfor %}"
	in := Input{
		Messages: []*chatv1.Message{
			{Role: "system", Content: "s\x00"}, {Role: "user", Content: "a\x00b", Name: "\x00"}, {Role: "assistant", Content: "A\x00"}, {Role: "tool", Content: "PK\x00\x03", ToolCallId: "c\x00"}, {Role: "user", Content: "z"},
		},
		Tools:     []*chatv1.Tool{{Name: "f", Description: "d\x00", Parameters: `{"d":"p\u0000"}`}},
		Variables: `{"v":"\u0000"}`,
	}
	const want = "fd\uFFFDp\uFFFD|\uFFFD|system:s\uFFFD|user:a\uFFFDb\uFFFD|assistant:A\uFFFD|tool:PK\uFFFD\x03c\uFFFD|user:z|"
	if got := render(t, source, in); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	seeing := render(t, vision, Input{Messages: []*chatv1.Message{{Role: "user", Content: "\x00b", Images: placed(1)}}})
	if !strings.Contains(seeing, "\uFFFD<|vision_start|>") {
		t.Errorf("the image has lost its place: %q", seeing)
	}
}

func TestImagesOfOtherTurnsAreShownOrNoted(t *testing.T) {
	shot := []*chatv1.Message{{Role: "user", Content: "look"}, {Role: "tool", Content: "shot", Images: placed(4)}, {Role: "system", Content: "s", Images: placed(0)}}
	if got := render(t, anywhere, Input{Messages: shot}); got != "user:look|tool:shot"+imagenote.NoImages+"|system:"+imagenote.NoImages+"s|" {
		t.Error(got)
	}
	const image = "<|vision_start|><|image_pad|><|vision_end|>"
	if got := render(t, vision, Input{Messages: shot}); strings.Count(got, image) != 2 || !strings.Contains(got, "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n"+image) {
		t.Errorf("an image is not in the prompt: %q", got)
	}
}

func TestEffortIsOneThatTheTemplateTakes(t *testing.T) {
	const (
		some  = "{% if reasoning_effort | default('low') not in ('low', 'medium', 'xhigh') %}{{ raise_exception('effort') }}{% endif %}{{ reasoning_effort | default('-') }}"
		off   = "{% if enable_thinking is defined and not enable_thinking %}off{% endif %}"
		other = "{% if thinking is defined and not thinking %}off{% endif %}"
		none  = "{% if reasoning_effort is defined %}{{ raise_exception('effort') }}{% endif %}"
	)
	for _, c := range []struct{ source, variables, want string }{
		{some, `{"reasoning_effort":"low"}`, "low"}, {some, `{"reasoning_effort":"high"}`, "medium"}, {some, `{"reasoning_effort":"max"}`, "xhigh"},
		{some, `{"reasoning_effort":"none"}`, "low"}, {some, `{"reasoning_effort":"minimal"}`, "low"}, {some, `{"reasoning_effort":"ultra"}`, "-"}, {some, ``, "-"},
		{some + off, `{"reasoning_effort":"none"}`, "-off"}, {some + off, `{"reasoning_effort":"none","enable_thinking":true}`, "-"}, {some + off, `{"reasoning_effort":"low"}`, "low"},
		{off, `{"reasoning_effort":"none"}`, "off"}, {off, `{"reasoning_effort":"minimal"}`, ""}, {off, `{"enable_thinking":false}`, "off"}, {other, `{"reasoning_effort":"none"}`, "off"}, {other, `{"enable_thinking":false}`, "off"}, {other, `{"enable_thinking":false,"thinking":true}`, ""},
		{none, `{"reasoning_effort":"high"}`, ""}, {none, `{"reasoning_effort":"ultra"}`, ""}, {"", `{"reasoning_effort":"none"}`, ""},
	} {
		if got := render(t, c.source+"|{{ messages[0].content }}", Input{Messages: user("u"), Variables: c.variables}); got != c.want+"|u" {
			t.Errorf("%s, %s: got %q, want %q", c.source, c.variables, got, c.want)
		}
	}
}

func TestRefusalOfATemplateSaysWhere(t *testing.T) {
	template, err := New(anywhere+"{% for m in messages %}{% if 'bad' in m.content %}{{ raise_exception('no.') }}{% endif %}{% endfor %}", nil)
	if err != nil {
		t.Fatal(err)
	}
	template.Model = "m"
	_, err = template.Render(t.Context(), Input{Messages: turns("user", "a", "assistant", "b", "user", "bad", "assistant", "c", "user", "d")})
	e, ok := errors.AsType[*streamerr.Error](err)
	if !ok || e.Reason != streamerr.Invalid || e.Param != "messages" || !strings.Contains(e.Message, "of m refuses turn 3 of 5, of the role user: no;") {
		t.Error(err)
	}
	template, err = New(callsOnly+"{% for m in messages %}{% if 'bad' in m.content %}{{ raise_exception('no.') }}{% endif %}{% endfor %}", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = template.Render(t.Context(), Input{Messages: append(user("a"), turn("T", "", "a", "b"), result("a"), result("bad"), turn("S", "", "c"), result("c"))})
	if err == nil || !strings.Contains(err.Error(), "refuses turn 4 of 6, of the role tool: no;") {
		t.Errorf("a turn that has another number in the prompt: %v", err)
	}
	long := turns("user", "bad", "assistant", "b", "user", strings.Repeat("x", maxSearched)) // is not searched
	if _, err = template.Render(t.Context(), Input{Messages: long}); err == nil || !strings.Contains(err.Error(), "refuses turn 1 of 3") {
		t.Error(err)
	}
	first, err := New(anywhere+"{% if 'bad' in messages[0].content %}{{ raise_exception('no.') }}{% endif %}", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = first.Render(t.Context(), Input{Messages: long}); err == nil || !strings.Contains(err.Error(), "refuses turn 3 of 3") {
		t.Error(err)
	}
}
