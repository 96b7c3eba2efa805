package toolcall

import "regexp"

const (
	hermesOpen  = "<tool_call>"
	hermesClose = "</tool_call>"
)

// The formats with calls between tags.
var (
	// Hermes is the format of NousResearch's models and of Qwen: JSON in tags. Package prompt describes
	// tools in this format to models whose template shows none.
	Hermes = tagged("hermes", hermesOpen, tags{open: []string{hermesOpen}, close: []string{hermesClose}, xml: xmlOf("function", "parameter"), keys: keysOf("")}, nil)
	// Qwen is the format of Qwen3-Coder, Nemotron 3 and Step 3.5: XML in the same tags.
	Qwen = tagged("qwen3-coder", "<function=",
		tags{open: []string{hermesOpen}, close: []string{hermesClose}, xml: xmlOf("function", "parameter"), keys: keysOf("")}, nil)
	// GLM is the format of GLM and Laguna: a name, keys and values in the same tags.
	GLM = tagged("glm", "<arg_key>", tags{open: []string{hermesOpen}, close: []string{hermesClose}, xml: xmlOf("function", "parameter"), keys: keysOf("")}, nil)
	// Hunyuan is the format of Hunyuan 3: GLM's within outer tags.
	Hunyuan = hunyuan("", func(text string) *Format {
		if suffix := hunyuanSuffix.FindStringSubmatch(text); suffix != nil {
			return hunyuan(suffix[1], nil)
		}
		return nil
	})
	// Seed is the format of Seed-OSS.
	Seed = tagged("seed", "<seed:tool_call>", tags{open: []string{"<seed:tool_call>"}, close: []string{"</seed:tool_call>"}, xml: xmlOf("function", "parameter")}, nil)
	// MiniMax1 is the format of MiniMax M1: a JSON object in each line.
	MiniMax1 = tagged("minimax-m1", `<tool_calls>\s*(?:\\n)?\{`, tags{open: []string{callsOpen}, close: []string{callsClose}}, nil)
	// MiniMax2 is the format of MiniMax M2.
	MiniMax2 = tagged("minimax-m2", "<minimax:tool_call>",
		tags{open: []string{"<minimax:tool_call>"}, close: []string{"</minimax:tool_call>"}, xml: xmlOf("invoke", "parameter")}, nil)
	// DSML is the format of DeepSeek since V3.2.
	DSML = tagged("dsml", "｜DSML｜", tags{
		open: []string{"<｜DSML｜tool_calls>", "<｜DSML｜function_calls>"}, close: []string{"</｜DSML｜tool_calls>", "</｜DSML｜function_calls>"},
		xml: xmlOf("｜DSML｜invoke", "｜DSML｜parameter"),
	}, nil)
	// Step is the format of Step 3.
	Step = tagged("step3", "steptml:|<｜tool_calls_begin｜>", tags{
		open:  []string{"<｜tool_calls_begin｜>", "<｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_begin｜>"},
		close: []string{"<｜tool_call_end｜>", "<｜tool_calls_end｜>"},
		xml:   xmlOf("steptml:invoke", "steptml:parameter"),
	}, nil)
	// Apriel is the format of Apriel, Hunyuan A13B and Jamba: a JSON list in tags.
	Apriel = tagged("apriel", callsOpen, tags{open: []string{callsOpen}, close: []string{callsClose}}, nil)
	// Apertus is the format of Apertus: a JSON list of objects whose only key is the tool.
	Apertus = tagged("apertus", `<\|tools_prefix\|>`, tags{open: []string{"<|tools_prefix|>"}, close: []string{"<|tools_suffix|>"}, keyed: true},
		func(tool string) (string, string) { return `<|tools_prefix|>[{"` + tool + `": `, "}]<|tools_suffix|>" })
	// Nemotron is the format of Nemotron before version 3.
	Nemotron = tagged("nemotron", "<TOOLCALL>", tags{open: []string{"<TOOLCALL>"}, close: []string{"</TOOLCALL>"}},
		func(tool string) (string, string) {
			return "<TOOLCALL>[{\"name\": \"" + tool + "\", \"arguments\": ", "}]</TOOLCALL>"
		})
	// LongCat is the format of LongCat.
	LongCat = tagged("longcat", "<longcat_tool_call>", tags{
		open: []string{"<longcat_tool_call>"}, close: []string{"</longcat_tool_call>"},
		keys: keyWords{key: "<longcat_arg_key>", keyEnd: "</longcat_arg_key>", value: "<longcat_arg_value>", valueEnd: "</longcat_arg_value>"},
	}, nil)
	// InternLM is the format of InternLM 2 and 3.
	InternLM = tagged("internlm", `<\|action_start\|>`, tags{open: []string{"<|action_start|>", "<|plugin|>"}, close: []string{"<|action_end|>"}},
		func(tool string) (string, string) {
			return "<|action_start|><|plugin|>{\"name\": \"" + tool + "\", \"parameters\": ", "}<|action_end|>"
		})
	// Solar2 is the format of Solar Open 2.
	Solar2 = tagged("solar-open2", `<\|tool_(?:arg|call):start\|>`, tags{
		open: []string{"<|tool_call:start|>"}, close: []string{"<|tool_call:end|>"},
		keys: keyWords{key: "<|tool_arg:start|>", keyEnd: "<|tool_arg:value|>", valueEnd: "<|tool_arg:end|>"},
	}, nil)
	// Solar is the format of Solar Open.
	Solar = tagged("solar-open", `<\|tool_call:(?:args|begin)\|>`, tags{
		open:    []string{"<|end|><|begin|>assistant<|tool_calls|>", "<|begin|>assistant<|tool_calls|>", "<|tool_calls|>", "<|tool_call:begin|>"},
		close:   []string{"<|tool_call:end|>", "<|calls|>"},
		heading: headWords{name: "<|tool_call:name|>", nameEnd: "<|tool_call:args|>", args: "<|tool_call:args|>"},
	}, func(tool string) (string, string) {
		return "<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>" + tool + "<|tool_call:args|>", "<|tool_call:end|>"
	})
	// MCP is the format of MiroThinker, which names a server of the Model Context Protocol. Its
	// template also describes Hermes' format.
	MCP = tagged("mcp", "<use_mcp_tool>", tags{
		open:    []string{"<use_mcp_tool>", "<server_name>", hermesOpen},
		close:   []string{"</arguments>", "</use_mcp_tool>", hermesClose},
		heading: headWords{name: "<tool_name>", nameEnd: "</tool_name>", args: "<arguments>"},
	}, func(tool string) (string, string) {
		return "<use_mcp_tool>\n<tool_name>" + tool + "</tool_name>\n<arguments>\n", "\n</arguments>\n</use_mcp_tool>"
	})
	// MiniMax3 is the format of MiniMax M3, whose parameters are tags, and their members, too.
	MiniMax3 = tagged("minimax-m3", `\]<\]minimax\[>\[`, tags{
		open: []string{nestedMark + "<tool_call>"}, close: []string{nestedMark + "</tool_call>"},
		xml:    xmlWords{calls: []string{nestedMark + "<invoke "}, values: []string{nestedMark + "<"}, callEnds: []string{nestedMark + "</invoke>"}},
		nested: true,
	}, nil)
	// MiniCPM is the format of MiniCPM 5, whose calls have no outer tags.
	MiniCPM = tagged("minicpm5", `<function name="`, tags{xml: cdata(xmlOf("function", "param"))},
		func(tool string) (string, string) { return `<function name="` + tool + `">`, "</function>" })
)

// hunyuanSuffix finds the suffix in a rendered call. Each published file of Hunyuan may have its own.
var hunyuanSuffix = regexp.MustCompile(`<tool_calls?(:[^>\s{}]+)>`)

const (
	callsOpen  = "<tool_calls>"
	callsClose = "</tool_calls>"
)

// hunyuan returns the format of Hunyuan with the suffix of its tags.
func hunyuan(suffix string, derive func(text string) *Format) *Format {
	f := tagged("hunyuan", `(?s)<tool_sep|<arg_key:|<tool_calls.*<arg_key`, tags{
		open:  []string{"<tool_call" + suffix + ">", "<tool_calls" + suffix + ">"},
		close: []string{"</tool_call" + suffix + ">", "</tool_calls" + suffix + ">"},
		keys:  keysOf(suffix),
	}, nil)
	f.derive = derive
	return f
}

// cdata returns words with values that may be CDATA sections.
func cdata(w xmlWords) xmlWords {
	w.cdata = true
	return w
}
