package toolcall

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// An answer joins the events of one answer.
type answer struct {
	text, thought string
	calls         []call
}

type call struct{ name, arguments, id string }

func known(name string) bool { return name == "f" || name == "get_weather" }

// takes returns the parameter types by the beginnings of their names, for every tool.
func takes(_ string, path ...string) Value {
	switch parameter := path[len(path)-1]; {
	case strings.HasPrefix(parameter, "int"):
		return NumberValue
	case strings.HasPrefix(parameter, "bool"):
		return BooleanValue
	case strings.HasPrefix(parameter, "list"):
		return ListValue | NullValue
	case strings.HasPrefix(parameter, "obj"):
		return ObjectValue
	case strings.HasPrefix(parameter, "mix"):
		return TextValue | ListValue
	case strings.HasPrefix(parameter, "s"):
		return TextValue
	case strings.HasPrefix(parameter, "o"):
		return TextOrNull
	}
	return AnyValue
}

// read parses text in pieces of step bytes.
func read(t testing.TB, f *Format, text string, step func() int) (a answer) {
	t.Helper()
	whole := 0 // number of complete calls
	id := ""   // of the next call
	p := New(f, known, takes, nil, func(e Event) {
		switch e.Kind {
		case Text:
			a.text += e.Text
		case Reasoning:
			a.thought += e.Text
		case Begin:
			if whole != len(a.calls) {
				t.Errorf("call %d begins before the one before it is complete", len(a.calls))
			}
			a.calls = append(a.calls, call{name: e.Text, id: id})
			id = ""
		case Arguments:
			if len(a.calls) == 0 {
				t.Fatalf("arguments %q of no call", e.Text)
			}
			a.calls[len(a.calls)-1].arguments += e.Text
		case ID:
			id = e.Text
		case Complete:
			if whole++; whole != len(a.calls) {
				t.Errorf("%d of %d calls are complete", whole, len(a.calls))
			}
		}
		if (e.Text == "") != (e.Kind == Complete) {
			t.Errorf("an event of kind %d with the text %q", e.Kind, e.Text)
		}
		if e.Kind == Arguments && whole == len(a.calls) {
			t.Errorf("arguments %q behind the end of their call", e.Text)
		}
	})
	for text != "" {
		n := min(step(), len(text))
		p.Next(text[:n])
		text = text[n:]
	}
	p.End()
	return a
}

// TestCallIsCompleteWithItsLastByte checks that a call is complete without the closing marker of
// its format, except for a marker that ends a message.
func TestCallIsCompleteWithItsLastByte(t *testing.T) {
	for _, c := range []struct {
		format *Format
		text   string
	}{
		{Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": {}}}"},
		{Hermes, "<tool_call>\n{\"name\": \"f\"}"},
		{Hermes, "<tool_call><function=f><parameter=s>x</parameter></function>"},
		{Llama, "{\"name\": \"f\", \"parameters\": {}}"},
		{Mistral, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}"},
		{Mistral, "[TOOL_CALLS]f[ARGS]{\"a\": 1}"},
		{DeepSeek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}"},
		{Harmony, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>"},
	} {
		complete := false
		p := New(c.format, known, takes, nil, func(e Event) { complete = complete || e.Kind == Complete })
		last := len(c.text) - 1
		if p.Next(c.text[:last]); complete {
			t.Errorf("%s: complete before %q", c.text[:last], c.text[last:])
		}
		if p.Next(c.text[last:]); !complete {
			t.Errorf("%s: not complete", c.text)
		}
	}
}

func (a answer) String() string {
	s := "text " + a.text + "|thought " + a.thought
	for _, c := range a.calls {
		s += "|" + c.name + c.arguments + c.id
	}
	return s
}

func calls(of ...string) (list []call) {
	for i := 0; i < len(of); i += 2 {
		list = append(list, call{name: of[i], arguments: of[i+1]})
	}
	return list
}

// xml returns a call of f with parameters.
func xml(of ...string) string {
	s := "<tool_call>\n<function=f>\n"
	for i := 0; i < len(of); i += 2 {
		s += "<parameter=" + of[i] + ">" + of[i+1] + "</parameter>\n"
	}
	return s + "</function>\n</tool_call>"
}

var answers = []transcript{
	{Hermes, "no call at all\n", answer{text: "no call at all\n"}},
	{Hermes, "", answer{}},
	{Hermes, "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>", answer{"Let me see.", "", calls("f", `{"a": [1, "}\""]}`)}},
	{Hermes, "<tool_call>{\"arguments\":{},\"name\":\"f\"}</tool_call>\n<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{\"b\":\"\\u00e9한\"}}\n</tool_call>\nbye", answer{"\nbye", "", calls("f", "{}", "get_weather", `{"b":"\u00e9한"}`)}},
	{Hermes, "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", answer{"", "", calls("f", "{}")}},
	{Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", answer{"", "", calls("f", `{"a": 1`)}},
	{Hermes, "<tool_call>\n{\"name\": \"f\", \"argu", answer{text: "<tool_call>\n{\"name\": \"f\", \"argu"}},
	{Hermes, "<tool_call>\n{\"name\": \"nobody\", \"arguments\": {}}\n</tool_call>", answer{text: "<tool_call>\n{\"name\": \"nobody\", \"arguments\": {}}\n</tool_call>"}},
	{Hermes, "<tool_call>not JSON</tool_call> <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", answer{"<tool_call>not JSON</tool_call>", "", calls("f", "{}")}},
	{Hermes, "a <tool_call", answer{text: "a <tool_call"}},
	{Hermes, "{\"name\": \"f\", \"arguments\": {}}", answer{text: "{\"name\": \"f\", \"arguments\": {}}"}},
	{Hermes, "<tool_call>\n<function=f>\n<parameter=city>\nNew\nYork\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>", answer{"", "", calls("f", `{"city": "New\nYork", "n": 3}`)}},
	{Hermes, "<tool_call><function=f></function></tool_call>", answer{"", "", calls("f", "{}")}},
	{Hermes, "<tool_call><function=g></function></tool_call>", answer{text: "<tool_call><function=g></function></tool_call>"}},

	{Hermes, xml("s", "12", "s2", "\n{\"a\": 1}\n", "s3", "", "s4", "null"), answer{"", "", calls("f", `{"s": "12", "s2": "{\"a\": 1}", "s3": "", "s4": "null"}`)}},
	{Hermes, xml("o", "12", "o2", "\nnull\n", "o3", "nullable", "o4", "nul"), answer{"", "", calls("f", `{"o": "12", "o2": null, "o3": "nullable", "o4": "nul"}`)}},
	{Hermes, xml("a", "\n[1,\n2]\n", "b", "[draft] <b>&</b>", "c", "", "d", "true", "e", "\n\nx\n\n"), answer{"", "", calls("f", "{\"a\": [1,\n2], \"b\": \"[draft] <b>&</b>\", \"c\": \"\", \"d\": true, \"e\": \"\\nx\\n\"}")}},
	{Hermes, "<tool_call><function=f><parameter=s>\nOslo é", answer{"", "", calls("f", `{"s": "Oslo é`)}},
	{Hermes, "<tool_call><function=f><parameter=a>[1, 2", answer{"", "", calls("f", `{"a": [1, 2`)}},
	{Hermes, "<tool_call><function=f><parameter=s>a</parameter><parameter=ci", answer{"", "", calls("f", `{"s": "a"`)}},
	{Hermes, xml("a", "["+strings.Repeat("1, ", maxHead)+"1]", "b", "["+strings.Repeat("1, ", maxHead/4)+"draft]"+strings.Repeat(" ", maxHead)),
		answer{"", "", calls("f", `{"a": [`+strings.Repeat("1, ", maxHead)+`1], "b": "[`+strings.Repeat("1, ", maxHead/4)+"draft]"+strings.Repeat(" ", maxHead)+`"}`)}},

	{Hermes, "<tool_call>" + strings.Repeat(" ", maxHead) + "{\"name\": \"f\", \"arguments\": {}}", answer{text: "<tool_call>" + strings.Repeat(" ", maxHead) + "{\"name\": \"f\", \"arguments\": {}}"}},
	{Hermes, "<tool_call>" + strings.Repeat(" ", maxHead-len(hermesOpen)) + "{\"name\": \"f\", \"arguments\": {}}", answer{calls: calls("f", "{}")}},

	{Qwen, xml("list", "["+strings.Repeat("'ab', ", maxHead/4)+"]"), answer{calls: calls("f", `{"list": [`+strings.Repeat(`"ab", `, maxHead/4-1)+`"ab"]}`)}},

	{Llama, "Hello {\"name\": \"f\", \"parameters\": {}}", answer{text: "Hello {\"name\": \"f\", \"parameters\": {}}"}},
	{Llama, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", answer{"", "", calls("f", `{"a": "b"}`)}},
	{Llama, "\n<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"get_weather\", \"parameters\": {\"x\": {}}}", answer{"", "", calls("f", "{}", "get_weather", `{"x": {}}`)}},
	{Llama, "{\"name\": \"Ann\", \"age\": 3}", answer{text: "{\"name\": \"Ann\", \"age\": 3}"}},
	{Llama, "{}", answer{text: "{}"}},

	{Mistral, "Well.[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"get_weather\", \"arguments\": {}}]", answer{"Well.", "", calls("f", `{"a": 1}`, "get_weather", "{}")}},
	{Mistral, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"]}\"}, \"id\": \"abcdefghi\"}] and", answer{" and", "", calls("f", `{"a": "]}"}`)}},
	{Mistral, "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]get_weather{}", answer{"", "", calls("f", `{"a": 1}`, "get_weather", "{}")}},
	{Mistral, "[TOOL_CALLS]f[CALL_ID]abc[ARGS]{}", answer{"", "", calls("f", "{}")}},
	{Mistral, "[TOOL_CALLS]none", answer{text: "[TOOL_CALLS]none"}},

	{DeepSeek, "Hm\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", answer{"Hm", "", calls("f", `{"a": 1}`, "get_weather", "{}")}},
	{DeepSeek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", answer{"", "", calls("f", `{"a": 1}`)}},
	{DeepSeek, "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", answer{"", "", calls("f", `{"a": 1}`)}},
	{DeepSeek, "Hm. <｜tool_calls_begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\nnull\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", answer{"Hm.", "", calls("f", "{}", "get_weather", "{}")}},
	{DeepSeek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}", answer{text: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}"}},

	{Harmony, "<|channel|>analysis<|message|>User asks.<|end|><|start|>assistant<|channel|>final<|message|>Hi.", answer{"Hi.", "User asks.", nil}},
	{Harmony, "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>", answer{"", "Need it.", calls("f", `{"a":1}`)}},
	{Harmony, "<|channel|>commentary<|message|>Two calls.<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{\"b\": {}}", answer{"Two calls.", "", calls("get_weather", `{"b": {}}`)}},
	{Harmony, " to=functions.f<|channel|>commentary json<|message|>{}", answer{"", "", calls("f", "{}")}},
	{Harmony, "no channel", answer{text: "no channel"}},
	{Harmony, "<|channel|>final<|message|>cut", answer{text: "cut"}},
	{Harmony, "<|channel|>ana", answer{}},
	{Harmony, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assi", answer{"", "Hm.", nil}},
	{Harmony, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>fin", answer{"", "Hm.", nil}},
	{Harmony, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constr", answer{"", "Hm.", nil}},
	{Harmony, "<|channel|>final<|message|>a<|end|>b", answer{text: "ab"}},
	{
		Harmony, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|><|start|>assistant<|channel|>analysis<|message|>c<|end|><|start|>assistant<|channel|>final<|message|>d",
		answer{"b\nd", "a\nc", nil},
	},
}

func TestAnswersAreParsedForAnyPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range slices.Concat(answers, tagTranscripts) {
		for i := range 60 {
			step := func() int { return 1 + r.IntN(1+i) }
			if got := read(t, c.format, c.text, step); got.String() != c.want.String() {
				t.Fatalf("%s: %s\n got %v\nwant %v", c.format.Name, c.text, got, c.want)
			}
		}
	}
}

func TestArgumentsAreEmittedAsTheyArrive(t *testing.T) {
	var events []Event
	p := New(Hermes, known, takes, nil, func(e Event) { events = append(events, e) })
	for _, piece := range []string{"<tool_call>\n{\"name\": \"f\", \"argum", "ents\": {\"a\"", ": 1"} {
		p.Next(piece)
	}
	want := []Event{{Begin, "f"}, {Arguments, "{"}, {Arguments, `"a"`}, {Arguments, ": 1"}}
	if len(events) != len(want) {
		t.Fatal(events)
	}
	for i := range want {
		if events[i] != want[i] {
			t.Errorf("event %d is %v, want %v", i, events[i], want[i])
		}
	}
}

// A model may write a whole file in one parameter. A stream that stays silent for that long counts
// as stalled.
func TestLongParametersAreEmittedAsTheyArrive(t *testing.T) {
	for _, begin := range []string{"<parameter=s>", "<parameter=s>{", "<parameter=o>n", "<parameter=a>x", "<parameter=a>[", "<parameter=a>{]", "<parameter=a", "<parameter=a>\""} {
		held := 0
		p := New(Hermes, known, takes, nil, func(e Event) {
			if e.Kind == Arguments {
				held = 0
			}
		})
		p.Next("<tool_call><function=f>")
		for _, r := range begin + strings.Repeat("1", 3*maxHead) + ">1" {
			p.Next(string(r))
			if held++; held > maxHead+200 && begin != "<parameter=a" {
				t.Fatalf("%s: %d bytes are held back", begin, held)
			}
		}
		if len(p.buf) > maxHead+200 {
			t.Errorf("%s: %d bytes are kept", begin, len(p.buf))
		}
	}
}

func TestSpecialTokensAreNotShown(t *testing.T) {
	text := ""
	p := New(Llama, known, takes, Llama.Markers, func(e Event) { text += e.Text })
	p.Next("a")
	p.Next("<|python_tag|>")
	p.Next("print(1)")
	p.End()
	if text != "aprint(1)" {
		t.Errorf("%q", text)
	}
}

func TestEndlessHeadsAreText(t *testing.T) {
	const call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}"
	for _, c := range []struct {
		format *Format
		begin  string
	}{
		{Hermes, "<tool_call>{\"x\":\""}, {Hermes, "<tool_call>{\"arguments\":{\"x\":\""}, {Hermes, "<tool_call><function="}, {Hermes, "<tool_call>"}, {Hermes, call},
		{Llama, "{\"a\":["}, {Llama, ""}, {Llama, "{\"name\": \"f\", \"parameters\": {}}"},
		{Mistral, "[TOOL_CALLS]"}, {Mistral, "[TOOL_CALLS]["}, {Mistral, "[TOOL_CALLS][" + call[len("<tool_call>"):]},
		{DeepSeek, deepOpen + deepBegin}, {DeepSeek, deepOpen}, {DeepSeek, deepOpen + deepBegin + "f" + deepSep + "{}"}, {Harmony, "<|channel|>"},
	} {
		for _, filler := range []string{"x", " "} {
			held := 0
			p := New(c.format, known, takes, nil, func(e Event) { held -= len(e.Text) })
			all := c.begin + strings.Repeat(filler, 3*maxHead)
			for i := range len(all) {
				p.Next(all[i : i+1])
				if held++; held > maxHead+200 {
					t.Fatalf("%s %s%s: %d bytes are held back", c.format.Name, c.begin, filler, held)
				}
			}
		}
	}
}

func TestFormatsAreDetectedAndNamed(t *testing.T) {
	for template, want := range map[string]*Format{
		"{{ '<tool_call>' }}": Hermes, "[TOOL_CALLS]": Mistral, "<｜tool▁calls▁begin｜>": DeepSeek, "<|channel|>": Harmony,
		`ipython {"name": function name, "parameters": dictionary}`: Llama, "nothing": nil, "Action Input:": lacking[1],
	} {
		if got := Detect(template); got != want {
			t.Errorf("%s: %v", template, got)
		}
	}
	if f, err := Named("mistral"); f != Mistral || err != nil || len(f.NewID()) != 9 {
		t.Error(f, err)
	}
	if _, err := Named("smoke"); err == nil || !strings.Contains(err.Error(), "harmony, muse, kimi, ") {
		t.Error(err)
	}
}

// TestTextsInCallsAreEmittedAsTheyArrive checks that each family passes on the beginning of a text
// before its end has arrived.
func TestTextsInCallsAreEmittedAsTheyArrive(t *testing.T) {
	for _, c := range []struct {
		format *Format
		text   string
	}{
		{Hermes, `<tool_call>{"name": "f", "arguments": "{\"s\": \"Paris`},
		{Apriel, `<tool_calls>[{"name": "f", "arguments": {"s": "Paris`},
		{Apertus, `<|tools_prefix|>[{"f": {"s": "Paris`},
		{Qwen, "<tool_call><function=f><parameter=s>Paris"},
		{Qwen, "Hm. <function=f><parameter=s>Paris"},
		{GLM, "<tool_call>f<arg_key>s</arg_key><arg_value>Paris"},
		{Hunyuan, "<tool_calls><tool_call>f<tool_sep><arg_key>s</arg_key><arg_value>Paris"},
		{Seed, "<seed:tool_call><function=f><parameter=s>Paris"},
		{MiniMax2, `<minimax:tool_call><invoke name="f"><parameter name="s">Paris`},
		{MiniMax3, m3(`<tool_call>*<invoke name="f">*<s>Paris`)},
		{DSML, `<｜DSML｜tool_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="a" string="true">Paris`},
		{MiniCPM, `<function name="f"><param name="s"><![CDATA[Paris`},
		{DeepSeek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"s\": \"Paris"},
		{Solar, "<|tool_call:begin|>0<|tool_call:name|>f<|tool_call:args|>{\"s\": \"Paris"},
		{MCP, "<use_mcp_tool><tool_name>f</tool_name><arguments>{\"s\": \"Paris"},
	} {
		got := ""
		p := New(c.format, known, takes, nil, func(e Event) {
			if e.Kind == Arguments {
				got += e.Text
			}
		})
		if p.Next(c.text); !strings.HasSuffix(got, "Paris") {
			t.Errorf("%s: %q of %s", c.format.Name, got, c.text)
		}
	}
}

func TestEachFormatIsDocumented(t *testing.T) {
	const page = "../../docs/reference/tool-formats.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		if !strings.Contains(string(text), "\n| `"+name+"` |") {
			t.Errorf("%s has no row for %s", page, name)
		}
	}
}

func TestUnreadCallsAreNoticed(t *testing.T) {
	for text, want := range map[string]string{
		"I look. <minimax:tool_call><invoke name=\"f\">":               "<minimax:tool_call>",
		"[TOOL_CALLS]f{} and [TOOL_CALLS]f{}":                          "[TOOL_CALLS]",
		"<tool_call>{\"name\": \"nobody\"}":                            "<tool_call>",
		"<tool_call>{\"name\": \"f\"}</tool_call> a < b":               "",
		"<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0": "<|tool_calls_section_begin|> <|tool_call_begin|>",
	} {
		for step := range 20 {
			p := New(Hermes, known, takes, nil, func(Event) {})
			for piece := range slices.Chunk([]byte(text), step+1) {
				p.Next(string(piece))
			}
			if p.End(); strings.Join(p.Unread(), " ") != want {
				t.Fatalf("%s in pieces of %d: %q", text, step+1, p.Unread())
			}
		}
	}
	if Label("[TOOL_CALLS]") != "[TOOL_CALLS]" || Label("<|im_start|>") != SpecialToken {
		t.Error(Label("[TOOL_CALLS]"), Label("<|im_start|>"))
	}
	for _, m := range marks {
		if len(m) > maxMark {
			t.Errorf("%s is longer than %d bytes", m, maxMark)
		}
	}
}

func TestACustomFormatIsJSONOrXMLBetweenItsTags(t *testing.T) {
	for name, text := range map[string]string{
		"json <call> </call>": `Ok. <call>{"name": "f", "arguments": {"city": "P"}}</call>`,
		"xml  [[ ]]":          `Ok. [[<function=f><parameter=city>P</parameter></function>]]`,
		"xml <c> </c>":        `Ok. <c><invoke name="f"><parameter name="city">P</parameter></invoke></c>`,
		"xml <d> </d>":        "Ok. <d>f\n<arg_key>city</arg_key>\n<arg_value>P</arg_value></d>",
	} {
		f, err := Named(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := answer{text: "Ok.", calls: calls("f", `{"city": "P"}`)}
		for step := range 9 {
			if got := read(t, f, text, func() int { return 1 + step }); got.String() != want.String() {
				t.Errorf("%s: %v", name, got)
			}
		}
		before, after := f.Around("f")
		if got := read(t, f, "Ok."+before+`{"city": "P"}`+after, func() int { return 3 }); got.String() != want.String() {
			t.Errorf("%s: a guided call is %v", name, got)
		}
	}
	for _, name := range []string{"json <a>", "yaml <a> </a>", "json <a> <a>", "json <a> </a> more", "json <a> " + strings.Repeat("x", maxTag+1)} {
		if f, err := Named(name); err == nil {
			t.Errorf("%s: %v", name, f)
		}
	}
}

func TestFormsAroundArgumentsAreReadAsCalls(t *testing.T) {
	for _, f := range formats {
		before, after := f.Around("get_weather")
		got := read(t, f, before+`{"a": "b"}`+after, func() int { return 3 })
		for i := range got.calls {
			got.calls[i].id = ""
		}
		if want := (answer{calls: calls("get_weather", `{"a": "b"}`)}); got.String() != want.String() {
			t.Errorf("%s: %v", f.Name, got)
		}
	}
}

// TestMixturesOfMarkersAreReadAlikeInPieces joins markers, calls and pieces of JSON at random.
func TestMixturesOfMarkersAreReadAlikeInPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 9))
	words := []string{"f", "get_weather", "x", "\n", " ", "{", "}", "[", "]", "\"", "'", "null", "True", ",", ":", `{"name": "f", "arguments": `, `{"a": 1}`, `"{\"a\": 1}"`, "12", "<", "</", "é", "```json"}
	for n := range 100 * len(formats) {
		f := formats[n%len(formats)]
		of := slices.Concat(words, f.Markers, f.Markers, f.opens, f.opens)
		before, after := f.Around("f")
		text := []string{"", before + `{"a": 1}` + after, before}[r.IntN(3)]
		for range 1 + r.IntN(12) {
			text += of[r.IntN(len(of))]
		}
		want := read(t, f, text, func() int { return len(text) })
		if got := read(t, f, text, func() int { return 1 + r.IntN(6) }); got.String() != want.String() {
			t.Fatalf("%s: %q\n got %v\nwant %v", f.Name, text, got, want)
		}
	}
}

func FuzzPiecesGiveTheSameResult(f *testing.F) {
	for i, c := range slices.Concat(answers, tagTranscripts) {
		for n := range formats {
			f.Add(uint8(n), c.text, uint64(i))
		}
	}
	for i, c := range transcripts {
		f.Add(uint8(slices.Index(formats, c.format)), c.text, uint64(i))
	}
	f.Add(uint8(1), "et me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"1, \"}]>", uint64(2))
	f.Fuzz(func(t *testing.T, n uint8, text string, seed uint64) {
		format := formats[int(n)%len(formats)]
		want := read(t, format, text, func() int { return max(1, len(text)) })
		r := rand.New(rand.NewPCG(seed, 5))
		if got := read(t, format, text, func() int { return 1 + r.IntN(11) }); got.String() != want.String() {
			t.Errorf("%s: %q\n got %v\nwant %v", format.Name, text, got, want)
		}
		if len(want.calls) == 0 && !format.Thinks && want.text != text {
			t.Errorf("%s: %q became %q", format.Name, text, want.text)
		}
	})
}

func BenchmarkParser(b *testing.B) {
	arguments, _ := json.Marshal(map[string]string{"text": strings.Repeat("word ", 200)})
	text := "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": " + string(arguments) + "}\n</tool_call>"
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		p := New(Hermes, known, takes, nil, func(Event) {})
		for i := 0; i < len(text); i += 5 {
			p.Next(text[i:min(i+5, len(text))])
		}
		p.End()
	}
}
