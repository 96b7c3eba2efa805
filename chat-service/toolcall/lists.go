package toolcall

// The formats with JSON, or calls of Python, after a marker.
var (
	// Granite is the format of Granite 3: a list after a marker.
	Granite = tagged("granite", `<\|tool_call\|>`, tags{open: []string{"<|tool_call|>"}, close: []string{"<|/tool_call|>"}},
		func(tool string) (string, string) { return `<|tool_call|>` + listed(tool), "}]" })
	// Phi is the format of Phi-4-mini.
	Phi = tagged("phi4", `<\|/tool_call\|>|<\|/tool\|>`, tags{open: []string{"<|tool_call|>", "functools"}, close: []string{"<|/tool_call|>"}},
		func(tool string) (string, string) { return `<|tool_call|>` + listed(tool), "}]<|/tool_call|>" })
	// FireFunction is the format of FireFunction v2.
	FireFunction = tagged("firefunction", `functools\[`, tags{open: []string{"functools"}},
		func(tool string) (string, string) { return "functools" + listed(tool), "}]" })
	// Cohere is the format of Command R7B, Command A and later ones.
	Cohere = tagged("cohere", `<\|START_ACTION\|>`, tags{open: []string{"<|START_ACTION|>"}, close: []string{"<|END_ACTION|>"}},
		func(tool string) (string, string) {
			return "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"" + tool + "\", \"parameters\": ", "}\n]<|END_ACTION|>"
		})
	// CommandR is the format of Command R and R+.
	CommandR = tagged("command-r", "Action:(?:\\s|\\\\n)*```json|Write 'Action:'", tags{open: []string{"Action:"}, fenced: true},
		func(tool string) (string, string) {
			return "Action:\n```json\n[\n    {\n        \"tool_name\": \"" + tool + "\",\n        \"parameters\": ", "\n    }\n]```"
		})
	// GigaChat is the format of GigaChat 3: an object in a message of its own.
	GigaChat = tagged("gigachat", `function call<\|role_sep\|>|<\|function_call\|>`, tags{
		open:  []string{"function call<|role_sep|>", "<|message_sep|>\n\nfunction call<|role_sep|>", "<|function_call|>"},
		close: []string{"<|message_sep|>"},
	}, func(tool string) (string, string) {
		return "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"" + tool + "\", \"arguments\": ", "}"
	})
	// GigaChat35 is the format of GigaChat 3.5: XML, as DeepSeek writes it.
	GigaChat35 = tagged("gigachat3.5", "｜GCML｜", tags{
		open: []string{"<｜GCML｜tool_calls>"}, close: []string{"</｜GCML｜tool_calls>"}, xml: xmlOf("｜GCML｜invoke", "｜GCML｜parameter"),
	}, nil)
	// Granite20 is the format of Granite 20B Function Calling.
	Granite20 = tagged("granite-20b", "<function_call>", tags{open: []string{"<function_call>"}},
		func(tool string) (string, string) {
			return "<function_call> {\"name\": \"" + tool + "\", \"arguments\": ", "}"
		})
	// LFM is the format of LFM2: a list of Python's calls, or of objects. MiniCPM 3 writes a call in
	// each line of a fence.
	LFM = tagged("lfm2", `<\|tool_(?:call|list)_start\|>|List of tools: \[`,
		tags{open: []string{"<|tool_call_start|>"}, close: []string{"<|tool_call_end|>"}, python: true, fenced: true},
		func(tool string) (string, string) { return "<|tool_call_start|>" + listed(tool), "}]<|tool_call_end|>" })
	// Olmo is the format of Olmo 3: one of Python's calls in each line.
	Olmo = tagged("olmo3", "<function_calls>", tags{open: []string{"<function_calls>"}, close: []string{"</function_calls>"}, python: true},
		func(tool string) (string, string) {
			return "<function_calls>\n" + tool + "(", ")\n</function_calls>"
		})
	// Llama is the format of Llama 3 and 4: the answer is an object, or a list of Python's calls.
	Llama = tagged("llama", `^\s*\{"(?:type": "function", "name|name)": "[^"]*", "parameters": |(?s:ipython.*"parameters": |"parameters": .*ipython)|<\|python_(?:start|tag)\|>`, llama,
		func(tool string) (string, string) { return `{"name": "` + tool + `", "parameters": `, "}" })
	// Pythonic is the format of models whose answer is a list of Python's calls.
	Pythonic = tagged("pythonic", `^\s*\[?get_weather\(city=|\[func_name1\(params_name1=`, llama,
		func(tool string) (string, string) { return "[" + tool + "(", ")]" })
	// XLAM is the format of xLAM: the answer is a list of objects.
	XLAM = tagged("xlam", `^\s*\[\{"name": "get_weather", "(?:arguments|parameters)"`, tags{first: true, fenced: true},
		func(tool string) (string, string) { return listed(tool), "}]" })
	// JSON is the format of models whose answer is an object, which has the name and "arguments".
	JSON = tagged("json", `^\s*\{"name": "get_weather", "arguments"`, tags{first: true, fenced: true},
		func(tool string) (string, string) { return `{"name": "` + tool + `", "arguments": `, "}" })
	// PLaMo is the format of PLaMo 3: a name and an object between tags.
	PLaMo = tagged("plamo3", "plamo:begin_tool_request", tags{
		open:    []string{plamo("begin_tool_requests"), plamo("begin_tool_request")},
		close:   []string{plamo("end_tool_arguments"), plamo("end_tool_request"), plamo("end_tool_requests")},
		heading: headWords{name: plamo("begin_tool_name"), nameEnd: plamo("end_tool_name"), args: plamo("begin_tool_arguments")},
	}, func(tool string) (string, string) {
		return plamo("begin_tool_requests") + plamo("begin_tool_request") + plamo("begin_tool_name") + tool + plamo("end_tool_name") + plamo("begin_tool_arguments"),
			plamo("end_tool_arguments") + plamo("end_tool_request") + plamo("end_tool_requests")
	})
	// HyperCLOVA is the format of HyperCLOVA X SEED Think: a list in a turn of its own.
	HyperCLOVA = tagged("hyperclovax", " -> tool/function_call", tags{
		open:  []string{" -> tool/function_call", "<|im_end|>\n<|im_start|>assistant -> tool/function_call"},
		close: []string{"<|im_end|>"},
	}, func(tool string) (string, string) { return " -> tool/function_call\n" + listed(tool), "}]" })
	// IFM is the format of K2 Horizon: a name, keys and values between tags.
	IFM = tagged("ifm", `<ifm\|tool_call`, tags{
		open: []string{"<ifm|tool_calls>", "<ifm|tool_call>"}, close: []string{"</ifm|tool_call>", "</ifm|tool_calls>"},
		keys: keyWords{key: "<ifm|arg_key>", keyEnd: "</ifm|arg_key>", value: "<ifm|arg_value>", valueEnd: "</ifm|arg_value>"},
	}, nil)
	// Dots is the format of dots: XML.
	Dots = tagged("dots", "<dots_function_call>", tags{
		open: []string{"<dots_function_call>"}, close: []string{"</dots_function_call>"}, xml: xmlOf("invoke", "parameter"),
	}, nil)
)

// llama are the tags of Llama 3 and 4, which the model also leaves out.
var llama = tags{open: []string{"<|python_tag|>", "<|python_start|>"}, close: []string{"<|python_end|>"}, python: true, first: true}

// listed returns the text before the arguments of the first object in a list.
func listed(tool string) string { return `[{"name": "` + tool + `", "arguments": ` }

func plamo(tag string) string { return "<|plamo:" + tag + ":plamo|>" }
