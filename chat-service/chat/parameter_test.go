package chat_test

import (
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// In XML calls, only the tool's schema can distinguish text that looks like a number from a number.
func TestXMLParametersHaveTheTypesOfTheSchema(t *testing.T) {
	m := model(t)
	const zip, null = "<tool_call>\n<function=f>\n<parameter=a>\n0123\n</parameter>\n</function>\n</tool_call>", "<tool_call><function=f><parameter=a>null</parameter></function></tool_call>"
	const number = "<tool_call><function=f><parameter=a>12</parameter></function></tool_call>"
	for _, c := range []struct{ schema, says, want string }{
		{`{"type":"string"}`, number, `"12"`},
		{`{"type":"string"}`, zip, `"0123"`},
		{`{"type":"string"}`, null, `"null"`},
		{`{"enum":["12","13"]}`, number, `"12"`},
		{`{"type":"integer"}`, number, `12`},
		{`{"enum":[12,"12"]}`, number, `12`},
		{`{"type":["string","null"]}`, number, `"12"`},
		{`{"type":["string","null"]}`, null, `null`},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, number, `"12"`},
		{`{"oneOf":[{"type":"string"},{"type":"number"}]}`, number, `12`},
		{`{"anyOf":[{"type":"string"},{}]}`, number, `12`},
		{`{"type":"number"}`, zip, `"0123"`}, // not a number in JSON
		{`{"type":7}`, number, `12`},
		{`{"type":"boolean"}`, "<tool_call><function=f><parameter=a>True</parameter></function></tool_call>", `true`},
		{`{"type":"string","nullable":true}`, null, `null`},
		{`{"$ref":"#/$defs/s"}`, number, `"12"`},
		{`{"anyOf":[{"$ref":"#/$defs/s"},{"type":"null"}]}`, null, `null`},
		{`{"$ref":"#/$defs/loop"}`, number, `12`},
		{`{"const":"12"}`, number, `"12"`},
		{`{"type":["string","array"]}`, number, `"12"`},
		{`{}`, number, `12`},
		{`true`, number, `12`},
	} {
		req := user("x")
		req.Tools = []*chatv1.Tool{{Name: "f", Parameters: `{"type":"object","properties":{"a":` + c.schema + `},"$defs":{"s":{"type":"string"},"loop":{"$ref":"#/$defs/loop"}}}`}}
		p := &parrot{ids: m.Tokenizer.Encode(c.says, false)}
		a, _, err := readWhole(t, pipeline(m, p.generate), req)
		if err != nil || len(a.Calls()) != 1 || a.Calls()[0].GetArguments() != `{"a": `+c.want+`}` {
			t.Errorf("%s of %s: %v %v, want %s", c.says, c.schema, a.Calls(), err, c.want)
		}
	}
}
