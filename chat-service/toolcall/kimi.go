package toolcall

// Kimi is the format of Kimi K2. The model gives each call an id, such as functions.search:0, by
// which it refers to the call later.
var Kimi = tagged("kimi", `<\|tool_calls?_section_begin\|>|<\|tool_call_argument_begin\|>`, tags{
	open:    []string{"<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_call_begin|>"},
	close:   []string{"<|tool_call_end|>", "<|tool_calls_section_end|>", "<|tool_call_section_end|>"},
	heading: headWords{args: "<|tool_call_argument_begin|>", numbered: true},
}, func(tool string) (string, string) {
	return "<|tool_calls_section_begin|><|tool_call_begin|>functions." + tool + ":0<|tool_call_argument_begin|>", "<|tool_call_end|><|tool_calls_section_end|>"
})
