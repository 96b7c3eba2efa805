package toolcall

import (
	"slices"
	"strings"
	"testing"
)

// TestParserHoldsBackBoundedText: a piece is appended to the text that is held back, so text that is
// held back without bound takes quadratic time.
func TestParserHoldsBackBoundedText(t *testing.T) {
	const n = 4 * maxHead
	for name, answer := range map[string]string{
		"text":                   strings.Repeat("x ", n/2),
		"white space":            strings.Repeat(" ", n),
		"begun markers":          strings.Repeat("<", n),
		"markers":                strings.Repeat("<tool_call>", n/11),
		"objects in tags":        "<tool_call>" + strings.Repeat("{", n),
		"nested arguments":       `<tool_call>{"name":"f","arguments":` + strings.Repeat(`{"a":`, n/5),
		"a string of arguments":  `<tool_call>{"name":"f","arguments":{"a":"` + strings.Repeat("\\", n),
		"a string before":        `<tool_call>{"x":"` + strings.Repeat("y", n),
		"a string behind":        `<tool_call>{"name":"f","arguments":{},"x":"` + strings.Repeat("y", n),
		"quotes behind":          `<tool_call>{"name":"f","arguments":{},"x":"` + strings.Repeat(`\"`, n/2),
		"a key behind":           `<tool_call>{"name":"f","arguments":{},"` + strings.Repeat("y", n),
		"line ends of XML":       "<tool_call><function=f><parameter=a>" + strings.Repeat("\n", n),
		"lists of XML":           "<tool_call><function=f><parameter=a>" + strings.Repeat("[", n),
		"a number of XML":        "<tool_call><function=f><parameter=a>" + strings.Repeat("1", n),
		"parameters of XML":      "<tool_call><function=f>" + strings.Repeat("<parameter=", n/11),
		"text of XML":            "<tool_call><function=f>" + strings.Repeat("y", n),
		"a list without objects": "[TOOL_CALLS]" + strings.Repeat("[", n),
		"white space of a list":  "[TOOL_CALLS]" + strings.Repeat(" ", n),
		"a long name":            "[TOOL_CALLS]" + strings.Repeat("f", n),
		"arguments of a name":    "[TOOL_CALLS]f[ARGS]" + strings.Repeat("{", n),
		"calls of a list":        "[TOOL_CALLS][" + strings.Repeat(`{"name":"f","arguments":{}},`, n/28),
		"calls of DeepSeek":      deepOpen + strings.Repeat(deepBegin, n/len(deepBegin)),
		"a name of DeepSeek":     deepOpen + deepBegin + "function" + deepSep + strings.Repeat("f", n),
		"arguments of DeepSeek":  deepOpen + deepBegin + "function" + deepSep + "f\n```json\n" + strings.Repeat("{", n),
		"objects":                strings.Repeat(`{"x":`, n/5),
		"a tag and objects":      "<|python_tag|>" + strings.Repeat(`{"name":"f","parameters":{}};`, n/29),
		"channels":               strings.Repeat("<|channel|>", n/11),
		"a long channel":         "<|channel|>" + strings.Repeat("x", n),
		"arguments of a channel": "<|channel|>commentary to=functions.f<|message|>" + strings.Repeat("{", n),
		"starts":                 strings.Repeat("<|start|>assistant", n/18),
		"lists in tags":          "<tool_call>" + strings.Repeat(`[{"name":"f","arguments":{}},`, n/29),
		"tags in tags":           "<tool_calls>" + strings.Repeat("<tool_calls>", n/12),
		"text of arguments":      `<tool_call>{"name":"f","arguments":"` + strings.Repeat(" ", n),
		"nested text":            `<tool_call>{"name":"f","arguments":"{` + strings.Repeat(`\"a\":{`, n/7),
		"words of arguments":     `<tool_call>{"name":"f","x":` + strings.Repeat("1", n),
		"words behind":           `<tool_call>{"name":"f","arguments":{},"x":` + strings.Repeat("1", n),
		"functions":              `<tool_call>{"name":"f","arguments":{},"function":` + strings.Repeat(`{"function":`, n/12),
		"Python's lists":         "<tool_call><function=f><parameter=a>" + strings.Repeat("['", n/2),
		"Python's commas":        "<tool_call><function=f><parameter=a>['x'," + strings.Repeat(" ", n),
		"keys":                   "<tool_call>f" + strings.Repeat("<arg_key>", n/9),
		"a long key":             "<tool_call>f<arg_key>" + strings.Repeat("k", n),
		"space behind a key":     "<tool_call>f<arg_key>k</arg_key>" + strings.Repeat(" ", n),
		"space behind a name":    "<tool_call>f" + strings.Repeat("\n", n),
		"text of keys":           "<tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value>" + strings.Repeat("y", n),
		"values of keys":         "<tool_call>f" + strings.Repeat("<arg_key>k</arg_key><arg_value>", n/30),
		"a long tag":             "<tool_call><function=" + strings.Repeat("f", n),
		"space behind a tag":     "<tool_call><function=f>" + strings.Repeat("\n", n),
		"bare tags":              strings.Repeat("<function=f>", n/12),
		"closing tags":           "<tool_call><function=f></function>" + strings.Repeat("</tool_call>\n", n/13),
		"a CDATA section":        `<function name="f"><param name="a"><![CDATA[` + strings.Repeat("]]", n/2),
		"begun ends":             "<|channel|>analysis<|message|>" + strings.Repeat("<|", n/2),
	} {
		everywhere := slices.Contains([]string{"text", "white space", "begun markers"}, name) || strings.ContainsAny(answer[:1], "{[")
		for _, f := range formats {
			marked := slices.ContainsFunc(f.Markers, func(m string) bool { return strings.Contains(answer, m) })
			if !marked && !everywhere { // the answer is any text for this format
				continue
			}
			p := New(f, func(tool string) bool { return tool == "f" }, func(string, ...string) Value { return AnyValue }, f.Markers, func(Event) {})
			most := 0
			for piece := range slices.Chunk([]byte(answer), 16) { // about a token
				p.Next(string(piece))
				most = max(most, len(p.buf)+len(p.raw)+len(p.space)+len(p.json.token)+len(p.json.args))
			}
			if p.End(); most > 3*maxHead {
				t.Errorf("%s, %s: %d bytes are held back", f.Name, name, most)
			}
		}
	}
}
