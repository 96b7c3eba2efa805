package toolcall

import (
	"slices"
	"strings"
	"testing"
)

// A transcript is a model's answer in its own form.
type transcript struct {
	format *Format
	text   string
	want   answer
}

// TestTranscriptsAreReadAtEveryCut checks that the answers of the families give the same events as a
// whole, cut at any byte, and byte by byte.
func TestTranscriptsAreReadAtEveryCut(t *testing.T) {
	for _, c := range slices.Concat(transcripts, tagTranscripts) {
		check := func(how string, step func() int) {
			t.Helper()
			if got := read(t, c.format, c.text, step); got.String() != c.want.String() {
				t.Errorf("%s, %s: %s\n got %v\nwant %v", c.format.Name, how, c.text, got, c.want)
			}
		}
		check("whole", func() int { return max(1, len(c.text)) })
		check("by bytes", func() int { return 1 })
		for at := 1; at < len(c.text); at++ {
			first := at
			check("in two pieces", func() int { n := first; first = len(c.text); return n })
		}
	}
}

var transcripts = []transcript{
	{Kimi, "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>functions.f:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
		answer{text: "I look.", calls: []call{{"get_weather", `{"city": "Paris"}`, "functions.get_weather:0"}, {"f", "{}", "functions.f:1"}}}},
	{Kimi, "<|tool_call_section_begin|> <|tool_call_begin|> get_weather:3 <|tool_call_argument_begin|> {\"a\": [1]} <|tool_call_end|> <|tool_call_section_end|> Done.",
		answer{text: " Done.", calls: []call{{"get_weather", `{"a": [1]}`, "get_weather:3"}}}},
	{Kimi, "<|tool_call_begin|>f<|tool_call_argument_begin|><|tool_call_end|>", answer{calls: calls("f", "{}")}},
	{Kimi, "<|tool_call_begin|>f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{}", // an id is kept once
		answer{calls: []call{{"f", "{}", "f:0"}, {"f", "{}", ""}}}},
	{Kimi, "<|tool_call_begin|>functions.nobody:0<|tool_call_argument_begin|>{}<|tool_call_end|>", answer{text: "<|tool_call_begin|>functions.nobody:0<|tool_call_argument_begin|>{}<|tool_call_end|>"}},
	{Kimi, "The marker <|tool_calls_section_begin|> begins calls.", answer{text: "The marker <|tool_calls_section_begin|> begins calls."}},

	{Gemma, "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:2,deep:true}<tool_call|><|tool_call>call:f{}<tool_call|>", answer{calls: calls("get_weather", `{"city": "Paris", "days": 2, "deep": true}`, "f", "{}")}},
	{Gemma, "Sure.\n<|tool_call>call:f{a:{b:[1,None,<|\"|>it's \"q\"\n<|\"|>]},s:12,o:null}<tool_call|> ok", answer{text: "Sure. ok", calls: calls("f", `{"a": {"b": [1, null, "it's \"q\"\n"]}, "s": "12", "o": null}`)}},
	{Gemma, "<|tool_call> f {<|\"|>a<|\"|>: 1, \"b\": \"x, y\"}<tool_call|>", answer{calls: calls("f", `{"a": 1, "b": "x, y"}`)}},
	{Gemma, "<|tool_call>call:f{a:<|\"|>cut o", answer{calls: calls("f", `{"a": "cut o`)}},
	{Gemma, "<|tool_call>call:nobody{}<tool_call|>", answer{text: "<|tool_call>call:nobody{}<tool_call|>"}},
	{Gemma, "A call begins with <|tool_call>.", answer{text: "A call begins with <|tool_call>."}},
	{Kimi3, kimi3("<o>response<s>I look.<c>response<s><o>tools<s>\n<o>call tool=\"get_weather\" index=\"1\"<s>" +
		"<o>argument key=\"city\" type=\"string\"<s>\nParis \"X\" <<c>argument<s><o>argument key=\"a&amp;b\" type=\"number\"<s>1e2<c>argument<s><o>argument key=\"c\" type=\"object\"<s>{\"x\":[true,null]}<c>argument<s><c>call<s>" +
		"<o>call tool=\"f\" index=\"2\"<s><c>call<s><c>tools<s><c>message<s>"), answer{text: "I look.", calls: calls("get_weather", `{"city": "\nParis \"X\" <", "a&b": 1e2, "c": {"x": [true, null]}}`, "f", "{}")}},
	{Kimi3, kimi3("<o>tools<s><o>call tool=\"f\" index=\"1\"<s><o>json type=\"object\"<s>{\"x\": 1}<c>json<s><c>call<s><c>tools<s>"), answer{calls: calls("f", `{"x": 1}`)}},
	{Kimi3, kimi3("<o>call tool=\"f\"<s><o>argument key=\"a\" type=\"boolean\"<s><c>argument<s><o>argument key=\"b\" type=\"string\"<s>cut"), answer{calls: calls("f", `{"a": null, "b": "cut`)}},
	{Kimi3, kimi3("<o>tools<s><o>call tool=\"nobody\"<s>"), answer{text: kimi3("<o>tools<s><o>call tool=\"nobody\"<s>")}},

	{Muse, " to=self<|message|>The <atem:invoke name=\"f\"> tag.<|eom|><|start|>assistant to=get_weather.get_weather<|message|><atem:function_calls>\n<atem:invoke name=\"get_weather.get_weather\">\n<atem:parameter name=\"city\">Paris</atem:parameter>\n<atem:parameter name=\"days\">2</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>" +
		"<|start|>assistant to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n</atem:invoke>\n</atem:function_calls><|eot|>", answer{"", "The <atem:invoke name=\"f\"> tag.", calls("get_weather", `{"city": "Paris", "days": 2}`, "f", "{}")}},
	{Muse, " to=user<|message|>Write <atem:invoke name=\"f\">.<|eot|>", answer{text: "Write <atem:invoke name=\"f\">."}},
	{Muse, "<|message|>Hi<|eom|><|start|>assistant to=self<|message|>Hm", answer{text: "Hi", thought: "Hm"}},
	{Muse, " to=self<|message|>Hm<|eom|><|start|>assistant to=us", answer{thought: "Hm"}},

	// Python's calls.
	{LFM, "<|tool_call_start|>[get_weather(city=\"Paris\", days=2, deep=True), f()]<|tool_call_end|>", answer{calls: calls("get_weather", `{"city": "Paris", "days": 2, "deep": true}`, "f", "{}")}},
	{LFM, "I check.<|tool_call_start|>[f(s='it\\'s', a=None, b=['x', (1, -2.5)], c={'k': {\"q\": False}}, o=7)]<|tool_call_end|>Checked.", answer{text: "I check.Checked.", calls: calls("f", `{"s": "it's", "a": null, "b": ["x", [1, -2.5]], "c": {"k": {"q": false}}, "o": "7"}`)}},
	{LFM, "<|tool_call_start|>[f(s=None, text='None')]<|tool_call_end|>", answer{calls: calls("f", `{"s": null, "text": "None"}`)}},
	{LFM, "<|tool_call_start|>[f(command='sed -n '1,9p' f.py', text=\"He said \"yes, and\" left\")]<|tool_call_end|>", answer{calls: calls("f", `{"command": "sed -n '1,9p' f.py", "text": "He said \"yes, and\" left"}`)}},
	{LFM, "<|tool_call_start|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]<|tool_call_end|>", answer{calls: calls("get_weather", `{"city": "Paris"}`)}},
	{LFM, "<|tool_call_start|>[f({\"a\": [1]}), f(a=[1)]<|tool_call_end|>", answer{calls: calls("f", `{"a": [1]}`, "f", `{"a": [1]}`)}},
	{LFM, "<|tool_call_start|>[nobody(a=1)]<|tool_call_end|>", answer{text: "<|tool_call_start|>[nobody(a=1)]<|tool_call_end|>"}},
	{LFM, "<|tool_call_start|>[f(a=\"Par", answer{calls: calls("f", `{"a": "Par`)}},
	{LFM, "f(a=1) is a call", answer{text: "f(a=1) is a call"}},
	{LFM, "<|tool_call_start|>\n```python\nget_weather(city=\"Paris\")\nf(a=[1, 2],b={\"c\": true})\n```\n<|tool_call_end|>\nDone.", answer{text: "\nDone.", calls: calls("get_weather", `{"city": "Paris"}`, "f", `{"a": [1, 2], "b": {"c": true}}`)}},
	{Olmo, "<function_calls>\nget_weather(city='Paris')\nf(a=1,\n b=2)\n</function_calls>", answer{calls: calls("get_weather", `{"city": "Paris"}`, "f", `{"a": 1, "b": 2}`)}},
	{Pythonic, "[get_weather(city='San Francisco', metric='celsius'), f(a={})]", answer{calls: calls("get_weather", `{"city": "San Francisco", "metric": "celsius"}`, "f", `{"a": {}}`)}},
	{Pythonic, "[f(x) is a function, f is not]", answer{text: "[f(x) is a function, f is not]"}},
	{Llama, "<|python_start|>[f(a=1)]<|python_end|>", answer{calls: calls("f", `{"a": 1}`)}},
	{Llama, "<|python_tag|>get_weather.call(city=\"Paris\")", answer{calls: calls("get_weather", `{"city": "Paris"}`)}},
	{Llama, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", answer{calls: calls("f", "{}")}},
	{Llama, "[1] A source: f(a=1)", answer{text: "[1] A source: f(a=1)"}},
	{Llama, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}\n{\"name\": \"f\", \"parameters\": {}}", answer{calls: calls("f", `{"a": 1}`, "f", "{}")}},

	// JSON.
	{Granite, "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"f\", \"arguments\": {}}]", answer{calls: calls("get_weather", `{"city": "Paris"}`, "f", "{}")}},
	{Granite, "<|tool_call|> [] none", answer{text: "<|tool_call|> [] none"}},
	{Granite20, "<function_call> {\"name\": \"f\", \"arguments\": {\"a\": 1}}\n<function_call> {\"name\": \"get_weather\", \"arguments\": {}}", answer{calls: calls("f", `{"a": 1}`, "get_weather", "{}")}},
	{Phi, "<|tool_call|>[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}]<|/tool_call|>", answer{calls: calls("f", `{"a": 1}`)}},
	{Phi, "<|tool_call|>{\"name\": \"f\", \"arguments\": {}}<|/tool_call|><|tool_call|>{\"name\": \"get_weather\", \"arguments\": {}}<|/tool_call|>", answer{calls: calls("f", "{}", "get_weather", "{}")}},
	{Phi, "functools[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", answer{calls: calls("f", `{"a": 1}`)}},
	{FireFunction, " functools[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"get_weather\", \"arguments\": {}}]", answer{calls: calls("f", `{"a": 1}`, "get_weather", "{}")}},
	{FireFunction, "import functools\n[functools.partial(f)]", answer{text: "import functools\n[functools.partial(f)]"}},
	{Cohere, "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"f\", \"parameters\": {}}\n]<|END_ACTION|>", answer{calls: calls("get_weather", `{"city": "Paris"}`, "f", "{}")}},
	{CommandR, "Plan: I look.\nAction: ```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \"parameters\": {\n            \"city\": \"Paris\"\n        }\n    }\n]```", answer{text: "Plan: I look.", calls: calls("get_weather", "{\n            \"city\": \"Paris\"\n        }")}},
	{CommandR, "Action: wait ```json\n[]```", answer{text: "Action: wait ```json\n[]```"}},
	{GigaChat, "I look.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}<|message_sep|>\n\n", answer{text: "I look.", calls: calls("get_weather", `{"city": "Paris"}`)}},
	{GigaChat, "<|function_call|>{\"name\": \"f\", \"arguments\": {}}", answer{calls: calls("f", "{}")}},
	{GigaChat35, "<｜GCML｜tool_calls>\n<｜GCML｜invoke name=\"f\">\n<｜GCML｜parameter name=\"a\" string=\"true\">12</｜GCML｜parameter>\n</｜GCML｜invoke>\n</｜GCML｜tool_calls>", answer{calls: calls("f", `{"a": "12"}`)}},
	{XLAM, "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"get_weather\", \"arguments\": {}}]", answer{calls: calls("f", `{"a": 1}`, "get_weather", "{}")}},
	{XLAM, "```json\n[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]\n```", answer{calls: calls("f", `{"a": 1}`)}},
	{XLAM, "```json\n{\"a\": 1}\n```", answer{text: "```json\n{\"a\": 1}\n```"}},
	{XLAM, "Hello [{\"name\": \"f\", \"arguments\": {}}]", answer{text: "Hello [{\"name\": \"f\", \"arguments\": {}}]"}},
	{JSON, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", answer{calls: calls("f", `{"a": 1}`)}},
	{Inkling, "get_weather<|content_invoke_tool_json|>{\"name\":\"get_weather\",\"args\":{\"city\":\"Paris\"}}<|end_message|><|message_model|>f<|content_invoke_tool_json|>{\"name\":\"f\",\"args\":{}}", answer{calls: calls("get_weather", `{"city":"Paris"}`, "f", "{}")}},
	{Inkling, "weather is a noun<|content_invoke_tool_json|> {\"name\":\"f\"}", answer{text: "weather is a noun", calls: calls("f", "{}")}},
	{Inkling, "<|content_invoke_tool_json|>[]", answer{text: "<|content_invoke_tool_json|>[]"}},
	{PLaMo, "I look.<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>get_weather<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>{\"city\": \"Paris\"}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>" +
		"<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>f<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>{}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>", answer{text: "I look.", calls: calls("get_weather", `{"city": "Paris"}`, "f", "{}")}},
	{HyperCLOVA, "I look.<|im_end|>\n<|im_start|>assistant -> tool/function_call\n[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"f\", \"arguments\": {}}]<|im_end|>", answer{text: "I look.", calls: calls("f", `{"a": 1}`, "f", "{}")}},
	{HyperCLOVA, " -> tool/function_call\n[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", answer{calls: calls("f", `{"a": 1}`)}},
	{IFM, "<ifm|tool_calls>\n<ifm|tool_call>f\n<ifm|arg_key>a</ifm|arg_key>\n<ifm|arg_value>1</ifm|arg_value>\n</ifm|tool_call>\n</ifm|tool_calls>", answer{calls: calls("f", `{"a": 1}`)}},
	{MiniMax3, "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>]<]minimax[>[</a><]minimax[>[<b>[1]]<]minimax[>[</", answer{text: "]<]minimax[>[</", calls: calls("f", "{\"a\": \"\"")}},
	{Dots, "<dots_function_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n</dots_function_call>", answer{calls: calls("f", `{"a": 1}`)}},
	{Functionary31, "<function=get_weather>{\"city\": \"Paris\"}</function><function=f>{}</function>", answer{calls: calls("get_weather", `{"city": "Paris"}`, "f", "{}")}},
	{Functionary31, "<function=nobody>{}</function>", answer{text: "<function=nobody>{}</function>"}},
	{Mistral, "[TOOL_CALLS]get_weather[CALL_ID]abcDEF123[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]f[CALL_ID]short[ARGS]{}", answer{calls: []call{{"get_weather", `{"city": "Paris"}`, "abcDEF123"}, {"f", "{}", ""}}}},
	{Functionary32, "all\nI look.\n>>>get_weather\n{\"city\": \"Paris\"}>>>f\n{}", answer{text: "I look.", calls: calls("get_weather", `{"city": "Paris"}`, "f", "{}")}},
	{Functionary32, "get_weather\n {\"a\": {}}", answer{calls: calls("get_weather", `{"a": {}}`)}},
	{Functionary32, "In Python,\n>>> f\n>>>f\nis a prompt.", answer{text: "In Python,\n>>> f\n>>>f\nis a prompt."}},
	{FunctionGemma, "<start_function_call>call:get_weather{city:<escape>New York<escape>, n:2}<end_function_call>", answer{calls: calls("get_weather", `{"city": "New York", "n": 2}`)}},
}

// kimi3 writes the markers of Kimi K3 for shorter ones.
func kimi3(s string) string {
	return strings.NewReplacer("<o>", kimi3Open, "<c>", kimi3Close, "<s>", kimi3Sep).Replace(s)
}

// TestFamiliesAreDetected has calls as chat templates write them, and texts in which templates
// describe calls.
func TestFamiliesAreDetected(t *testing.T) {
	for text, want := range map[string]*Format{
		"<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{}": Kimi,
		"<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|>":                             Kimi3,
		"<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>}<tool_call|>":                                     Gemma,
		"<start_function_call>call:get_weather{}":                                                              FunctionGemma,
		"[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {}}]":                                         Mistral,
		"[TOOL_CALLS]get_weather[ARGS]{}":                                                                      MistralArgs,
		"[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{}":                                                    MistralIDs,
		"{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}":                                   Llama,
		"<|python_start|>{\"name\": \"get_weather\"":                                                           Llama,
		"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}":                                    JSON,
		"[get_weather(city='Paris', days=2)]":                                                                  Pythonic,
		"in the format of [func_name1(params_name1=params_value1), ...]":                                       Pythonic,
		"[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]":                                  XLAM,
		"List of tools: [{\"type\": \"function\"":                                                              LFM,
		"<|tool_call_start|>\n```python\nget_weather(city=\"Paris\")":                                          LFM,
		"<function_calls>\nget_weather(city='Paris')\n</function_calls>":                                       Olmo,
		"respond only with <|tool_call|> followed by a JSON list":                                              Granite,
		"<|tool|>[]<|/tool|>":                                                   Phi,
		"<|tool_call|>{\"name\": \"foo\"}<|/tool_call|>":                        Phi,
		" functools[{\"name\": \"get_weather\"":                                 FireFunction,
		"<|START_ACTION|>[\n    {\"tool_call_id\": \"0\"":                       Cohere,
		"\nAction:\n```json\n[\n":                                               CommandR,
		"Write 'Action:' followed by a json-formatted list":                     CommandR,
		"<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\"":               GigaChat,
		"<｜GCML｜tool_calls>":                                                    GigaChat35,
		"<function_call> {\"name\": \"get_weather\"":                            Granite20,
		"<function=get_weather>{\"city\": \"Paris\"}</function>":                Functionary31,
		"<tool_call>\n<function=get_weather>\n<parameter=city>":                 Qwen,
		"get_weather\n{\"city\": \"Paris\"}":                                    Functionary32,
		"Respond in this format:\n>>>${recipient}\n${content}":                  Functionary32,
		"get_weather<|message|><atem:function_calls>\n<atem:invoke":             Muse,
		"<dots_function_call>\n<invoke name=":                                   Dots,
		"[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\"}}]": nil,
	} {
		if got := Detect(text); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestAnUnknownFormOfJSONIsDerivedFromTheTemplate has calls as templates of unknown families may write
// them.
func TestAnUnknownFormOfJSONIsDerivedFromTheTemplate(t *testing.T) {
	const arguments = `{"city": "Paris", "days": 2, "deep": true}`
	for _, written := range []string{
		"<think>\n\n</think>\n\n<|call|>\n{\"name\": \"get_weather\", \"arguments\": " + arguments + "}\n<|/call|><|im_end|>",
		"CALL: [{\"id\": 1, \"tool_name\": \"get_weather\", \"parameters\": " + arguments + "}]<eos>",
		"{\"name\": \"get_weather\", \"args\": " + arguments + "}",
		"[call]{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Paris\",\"days\":2}}",
	} {
		f := Detect(written)
		if f == nil {
			t.Errorf("%s: no format", written)
			continue
		}
		before, after := f.Around("get_weather")
		for _, text := range []string{written, before + arguments + after} {
			got := read(t, f, "Well.\n"+text, func() int { return 5 })
			if before[0] == '{' { // without a tag, only at the beginning
				got = read(t, f, text, func() int { return 5 })
			}
			if len(got.calls) != 1 || got.calls[0].name != "get_weather" || !strings.HasPrefix(got.calls[0].arguments, "{\"city\":") || strings.Contains(got.text, "{") {
				t.Errorf("%s: %s: %v", written, text, got)
			}
		}
	}
	for _, other := range []string{"{\"name\": \"get_weather\", \"parameters\": {\"type\": \"object\"}}", "get_weather: Paris", ""} {
		if f := derived(other); f != nil {
			t.Errorf("%s: %v", other, f.Name)
		}
	}
}

// TestHostileAnswersOfFamiliesAreHeldBackWithinBounds sends beginnings of each family's calls without
// end.
func TestHostileAnswersOfFamiliesAreHeldBackWithinBounds(t *testing.T) {
	const n = 4 * maxHead
	for _, c := range slices.Concat(transcripts, tagTranscripts) {
		for at := range len(c.text) {
			if at%29 != 0 && at > 12 {
				continue
			}
			for _, filler := range []string{"x", " ", "[", "'", "\\", "("} {
				p := New(c.format, known, takes, c.format.Markers, func(Event) {})
				p.Next(c.text[:at])
				for range n / 512 {
					p.Next(strings.Repeat(filler, 512))
					if held := len(p.buf) + len(p.raw); held > 2*maxHead {
						t.Fatalf("%s: %d bytes are held back after %s%s", c.format.Name, held, c.text[:at], filler)
					}
				}
			}
		}
	}
}
