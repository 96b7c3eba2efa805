package toolcall

import "strings"

// m3 returns a text in which nestedMark stands for asterisks, and at the beginning.
func m3(s string) string { return nestedMark + strings.ReplaceAll(s, "*", nestedMark) }

// tagTranscripts are answers of models that write calls between tags.
var tagTranscripts = []transcript{
	// Hermes: forms that Qwen and others write besides the form of their templates.
	{Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\\"city\\\": \\\"Z\\\\u00fcrich \\\\\\\"x\\\\\\\"\\\"}\"}\n</tool_call>", answer{calls: calls("f", `{"city": "Z\u00fcrich \"x\""}`)}},
	{Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\ud83d\\ude00\\\"}\"}\n</tool_call>", answer{calls: calls("f", `{"a": "😀"}`)}},
	{Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": null}\n</tool_call>", answer{calls: calls("f", "{}")}},
	{Hermes, "<tool_call>\n{\"name\": \"functions.f\", \"arguments\": {\"a\": 1}}\n</tool_call>", answer{calls: calls("f", `{"a": 1}`)}},
	{Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": \"\"}\n</tool_call>", answer{calls: calls("f", "{}")}},
	{Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": \"null\"}\n</tool_call>", answer{calls: calls("f", "{}")}},
	{Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": \"Paris\"}\n</tool_call>", answer{text: "<tool_call>\n{\"name\": \"f\", \"arguments\": \"Paris\"}\n</tool_call>"}},
	{Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": nil}\n</tool_call>", answer{text: "<tool_call>\n{\"name\": \"f\", \"arguments\": nil}\n</tool_call>"}},
	{Hermes, "<tool_call>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"get_weather\", \"arguments\": {}}]</tool_call> done", answer{text: " done", calls: calls("f", `{"a": 1}`, "get_weather", "{}")}},
	{Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>", answer{calls: calls("f", "{}", "get_weather", "{}")}},
	{Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>", answer{calls: calls("f", "{}", "get_weather", "{}")}},
	{Hermes, "<tool_call>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}\n</tool_call>", answer{calls: calls("f", `{"a": 1}`)}},
	{Hermes, "<tool_call>\n{\"function\": \"f\", \"parameters\": {\"a\": 1}}\n</tool_call>", answer{calls: calls("f", `{"a": 1}`)}},
	{Hermes, "Write <function=f> to call it.", answer{text: "Write <function=f> to call it."}},
	{Hermes, "The <tool_call> tag calls f.", answer{text: "The <tool_call> tag calls f."}},

	// Qwen3-Coder: a missing opening tag, missing ends, quoted names, Python's values.
	{Qwen, "I look.\n<function=f>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>", answer{text: "I look.", calls: calls("f", `{"city": "Paris"}`)}},
	{Qwen, "<tool_call>\n<function=f>\n<parameter=city>\nParis\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>", answer{calls: calls("f", `{"city": "Paris", "n": 3}`)}},
	{Qwen, "<tool_call>\n<function=f>\n<parameter=city>Paris\n</function>\n</tool_call>", answer{calls: calls("f", `{"city": "Paris"}`)}},
	{Qwen, "<tool_call>\n<function=f>\n<parameter=city>Paris\n</tool_call>", answer{calls: calls("f", `{"city": "Paris"}`)}},
	{Qwen, "<tool_call>\n<function=\"f\">\n<parameter='city'>\nParis\n</parameter>\n</function>\n</tool_call>", answer{calls: calls("f", `{"city": "Paris"}`)}},
	{Qwen, "<tool_call>\n<function name=\"f\">\n<parameter name=\"city\">\nParis\n</parameter>\n</function>\n</tool_call>", answer{calls: calls("f", `{"city": "Paris"}`)}},
	{Qwen, "<tool_call>\n<function=f\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>", answer{calls: calls("f", `{"city": "Paris"}`)}},
	{Qwen, "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=s>\na\n\nb\n</parameter>\n</function>\n</tool_call>", answer{calls: calls("f", "{}", "get_weather", `{"s": "a\n\nb"}`)}},
	{Qwen, "<tool_call>\n<function=f>\n</function>\n<function=get_weather>\n</function>\n</tool_call>", answer{calls: calls("f", "{}", "get_weather", "{}")}},
	{Qwen, "<tool_call>\n<function=f>\n{\"city\": \"Paris\"}\n</function>\n</tool_call>", answer{calls: calls("f", `{"city": "Paris"}`)}},
	{Qwen, xml("deep", "\nTrue\n", "x", "None", "y", "\nFalse\n", "z", "Truest", "s", "True"), answer{calls: calls("f", `{"deep": true, "x": null, "y": false, "z": "Truest", "s": "True"}`)}},
	{Qwen, xml("bool", "TRUE", "bool2", "\"false\"", "list", "None"), answer{calls: calls("f", `{"bool": true, "bool2": false, "list": null}`)}},
	{Qwen, xml("int", "\"3\"", "int2", "'4'", "int3", " 5 ", "int4", "five"), answer{calls: calls("f", `{"int": 3, "int2": 4, "int3": 5, "int4": "five"}`)}},
	{Qwen, xml("list", "['a', 'it\\'s', \"b\"]", "a", "['x', True, None, 1.5, ('t',), {'k': [False, ]}]"), answer{calls: calls("f", `{"list": ["a", "it's", "b"], "a": ["x", true, null, 1.5, ["t"], {"k": [false]}]}`)}},
	{Qwen, xml("obj", "\"{\\\"a\\\": 1}\"", "obj2", "{'a': 'say \"hi\"\\n\\x41'}"), answer{calls: calls("f", `{"obj": {"a": 1}, "obj2": {"a": "say \"hi\"\nA"}}`)}},
	{Qwen, xml("a", "['x' y]", "b", "{x: 1}", "mix", "12", "mix2", "[12]"), answer{calls: calls("f", `{"a": "['x' y]", "b": "{x: 1}", "mix": "12", "mix2": [12]}`)}},

	// GLM, with and without line ends.
	{GLM, "I check.\n<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>int</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>get_weather\n</tool_call>", answer{text: "I check.", calls: calls("f", `{"city": "Paris", "int": 2}`, "get_weather", "{}")}},
	{GLM, "<tool_call>f<arg_key>deep</arg_key><arg_value>true</arg_value><arg_key>s</arg_key><arg_value>a\nb</arg_value></tool_call><tool_call>get_weather</tool_call>", answer{calls: calls("f", `{"deep": true, "s": "a\nb"}`, "get_weather", "{}")}},
	{GLM, "<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>Paris\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", answer{calls: calls("f", `{"city": "Paris", "n": 3}`)}},
	{GLM, "<tool_call>f\n{\"city\": \"Paris\"}\n</tool_call>", answer{calls: calls("f", `{"city": "Paris"}`)}},
	{GLM, "<tool_call>nobody\n</tool_call>", answer{text: "<tool_call>nobody\n</tool_call>"}},
	{GLM, "<tool_call>f is a tool", answer{text: "<tool_call>f is a tool"}},
	{GLM, "<tool_call>f<arg_key>s</arg_key><arg_value>cut", answer{calls: calls("f", `{"s": "cut`)}},
	{Hermes, "<tool_call>f\n<arg_key>deep</arg_key>\n<arg_value>true</arg_value>\n</tool_call>", answer{calls: calls("f", `{"deep": true}`)}},

	{Hunyuan, "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>\n<tool_call>get_weather<tool_sep>\n</tool_call>\n</tool_calls>", answer{calls: calls("f", `{"city": "Paris"}`, "get_weather", "{}")}},
	{Detect("<tool_calls:x1>\n<tool_call:x1>get_weather<tool_sep:x1>"), "<tool_calls:x1>\n<tool_call:x1>f<tool_sep:x1>\n<arg_key:x1>city</arg_key:x1>\n<arg_value:x1>Paris</arg_value:x1>\n</tool_call:x1>\n</tool_calls:x1>", answer{calls: calls("f", `{"city": "Paris"}`)}},
	{Solar2, "<|tool_call:start|>f\n<|tool_arg:start|>city<|tool_arg:value|>Paris<|tool_arg:end|>\n<|tool_arg:start|>n<|tool_arg:value|>3<|tool_arg:end|>\n<|tool_call:end|>", answer{calls: calls("f", `{"city": "Paris", "n": 3}`)}},
	{LongCat, "<longcat_tool_call>f\n<longcat_arg_key>city</longcat_arg_key>\n<longcat_arg_value>Paris</longcat_arg_value>\n</longcat_tool_call>", answer{calls: calls("f", `{"city": "Paris"}`)}},
	{LongCat, "<longcat_tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</longcat_tool_call>", answer{calls: calls("f", "{}")}},

	// XML of other families.
	{Seed, "\n<seed:tool_call>\n<function=f>\n<parameter=city>Paris</parameter>\n<parameter=bool>True</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=get_weather>\n</function>\n</seed:tool_call>", answer{calls: calls("f", `{"city": "Paris", "bool": true}`, "get_weather", "{}")}},
	{MiniMax2, "\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"city\">P</parameter>\n<parameter name=\"s\">12</parameter>\n</invoke>\n<invoke name=\"get_weather\">\n</invoke>\n</minimax:tool_call>", answer{calls: calls("f", `{"city": "P", "s": "12"}`, "get_weather", "{}")}},
	{MiniMax2, "Hm. <invoke name=\"f\">\n<parameter name=\"city\">P</parameter>\n</invoke>\n</minimax:tool_call>", answer{text: "Hm.", calls: calls("f", `{"city": "P"}`)}},
	{DSML, "Both.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"city\" string=\"true\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"get_weather\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", answer{text: "Both.", calls: calls("f", `{"city": "12", "days": 2}`, "get_weather", "{}")}},
	{DSML, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"false\">[1, {\"b\": null}]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>", answer{calls: calls("f", `{"a": [1, {"b": null}]}`)}},
	{Step, "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\">\n<steptml:parameter name=\"query\">rust</steptml:parameter>\n<steptml:parameter name=\"int\">10</steptml:parameter>\n</steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>", answer{calls: calls("f", `{"query": "rust", "int": 10}`)}},
	{MiniCPM, "Sure.\n<function name=\"f\"><param name=\"city\">Paris</param><param name=\"bool\">True</param></function>\n<function name=\"get_weather\"><param name=\"s\"><![CDATA[a </param> <b>\n& c]]></param></function>", answer{text: "Sure.", calls: calls("f", `{"city": "Paris", "bool": true}`, "get_weather", `{"s": "a </param> <b>\n& c"}`)}},
	{MiniCPM, "<function name=\"f\"></function>", answer{calls: calls("f", "{}")}},
	{MiniCPM, "Use <function name=\"f\"> for it.", answer{text: "Use <function name=\"f\"> for it."}},

	// MiniMax M3, whose parameters are tags.
	{MiniMax3, "Ok.\n" + m3("<tool_call>\n*<invoke name=\"f\">*<city>Paris*</city>*<int>2*</int>*<s>12*</s>*<a>\n*<item>1*</item>*<item>x*</item>\n*</a>*<obj>*<lat>48.9*</lat>*<in>*<deep>True*</deep>*</in>*</obj>*</invoke>\n*<invoke name=\"get_weather\">*</invoke>\n*</tool_call>"),
		answer{text: "Ok.", calls: calls("f", `{"city": "Paris", "int": 2, "s": "12", "a": [1, "x"], "obj": {"lat": 48.9, "in": {"deep": true}}}`, "get_weather", "{}")}},
	{MiniMax3, m3("<tool_call>*<invoke name=\"f\">*<a>*</a>*<b>[1]*</b>* </invoke>*</tool_call>"), answer{calls: calls("f", `{"a": "", "b": [1]}`)}},
	{MiniMax3, m3("<tool_call>*<invoke name=\"f\">*<s>a < b ]<] c"), answer{calls: calls("f", `{"s": "a < b ]<] c`)}},
	{MiniMax3, m3("<tool_call>*<invoke name=\"f\">*<a>*<item>1*</tool_call>"), answer{calls: calls("f", `{"a": [1]}`)}},

	// A name before JSON.
	{Solar, "<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>f<|tool_call:args|>{\"city\":\"P\"}<|tool_call:end|><|tool_call:begin|>1<|tool_call:name|>get_weather<|tool_call:args|>{}<|tool_call:end|><|calls|>", answer{calls: calls("f", `{"city":"P"}`, "get_weather", "{}")}},
	{Solar, "Let me check.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>f<|tool_call:args|><|tool_call:end|>", answer{text: "Let me check.", calls: calls("f", "{}")}},
	{MCP, "I search.\n<use_mcp_tool>\n<server_name>generic-extras</server_name>\n<tool_name>f</tool_name>\n<arguments>\n{\"city\": \"P\"}\n</arguments>\n</use_mcp_tool>", answer{text: "I search.", calls: calls("f", `{"city": "P"}`)}},
	{MCP, "<use_mcp_tool>\n<tool_name>f</tool_name>\n<arguments>\n</arguments>\n</use_mcp_tool>", answer{calls: calls("f", "{}")}},
	{Solar, "<|tool_call:begin|>0<|tool_call:name|>f<|tool_call:args|>null<|tool_call:end|>", answer{calls: calls("f", "{}")}},
	{Solar, "<|tool_call:begin|>0<|tool_call:name|>f<|tool_call:args|>\"{\\\"a\\\": [1]}\"<|tool_call:end|>", answer{calls: calls("f", `{"a": [1]}`)}},
	{Mistral, "[TOOL_CALLS]f[ARGS]null[TOOL_CALLS]get_weather[ARGS]\"{\\\"a\\\": 1}\"", answer{calls: calls("f", "{}", "get_weather", `{"a": 1}`)}},
	{Mistral, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}, {\"name\": \"get_weather\", \"arguments\": null}]", answer{calls: calls("f", `{"a": 1}`, "get_weather", "{}")}},
	{MCP, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", answer{calls: calls("f", "{}")}},
	{MCP, "Text with <use_mcp_tool> in it.", answer{text: "Text with <use_mcp_tool> in it."}},

	// JSON of other families.
	{MiniMax1, "<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"city\": \"P\"}}\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_calls>", answer{calls: calls("f", `{"city": "P"}`, "get_weather", "{}")}},
	{Apriel, "Ok.\n<tool_calls>[{\"name\": \"f\", \"arguments\": {\"city\": \"P\"}, \"id\": \"1\"}, {\"name\": \"get_weather\", \"arguments\": \"{}\"}]</tool_calls>", answer{text: "Ok.", calls: calls("f", `{"city": "P"}`, "get_weather", "{}")}},
	{Apertus, "<|tools_prefix|>[{\"f\": {\"city\": \"P\"}}, {\"get_weather\": {}}]<|tools_suffix|>", answer{calls: calls("f", `{"city": "P"}`, "get_weather", "{}")}},
	{Apertus, "<|tools_prefix|>[{\"nobody\": {}}]<|tools_suffix|>", answer{text: "<|tools_prefix|>[{\"nobody\": {}}]<|tools_suffix|>"}},
	{Nemotron, "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"city\": \"P\"}}]</TOOLCALL>", answer{calls: calls("f", `{"city": "P"}`)}},
	{InternLM, "I will.<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {\"city\": \"P\"}}<|action_end|>", answer{text: "I will.", calls: calls("f", `{"city": "P"}`)}},
}
