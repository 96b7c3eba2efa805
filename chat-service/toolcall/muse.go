package toolcall

import "regexp"

// Muse is the format of Muse Glimmer. The whole answer consists of messages with recipients: the
// model itself, the user, or a tool, which is called in XML.
//
//	 to=self<|message|>I look.<|eom|><|start|>assistant to=get_weather<|message|>
//	<atem:function_calls><atem:invoke name="get_weather">
//	<atem:parameter name="city">Paris</atem:parameter></atem:invoke></atem:function_calls><|eot|>
var Muse = muse()

func muse() *Format {
	recipient := regexp.MustCompile(`to=([^\s<]+)`)
	m := &messages{begins: []string{" to=", messageBody}, ends: []string{"<|eom|>", "<|eot|>", messageStart}}
	f := tagged("muse", "<atem:", tags{
		open: []string{"<atem:function_calls>"}, close: []string{"</atem:function_calls>"}, xml: xmlOf("atem:invoke", "atem:parameter"),
		ends: m.ends, after: m.between,
	}, func(tool string) (string, string) {
		return " to=" + tool + messageBody + "<atem:function_calls>\n<atem:invoke name=\"" + tool + "\">\n", "\n</atem:invoke>\n</atem:function_calls>"
	})
	calls := f.begin
	m.address = func(_ *Parser, header string) (Kind, state) {
		switch to := recipient.FindStringSubmatch(header); {
		case to == nil || to[1] == "user":
			return Text, nil
		case to[1] == "self":
			return Reasoning, nil
		default:
			return Text, calls
		}
	}
	f.begin, f.Thinks, f.Answer = m.begin, true, " to=user"+messageBody
	f.Thought.Open, f.Thought.Close, f.Thought.Gap = " to=self"+messageBody, "<|eom|>", messageStart+"assistant"
	f.Markers = append(f.Markers, append(m.ends, messageBody)...)
	return f
}
