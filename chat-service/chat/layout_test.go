package chat

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/toolcall"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// xmlFamilies are the families whose calls are XML, with a call of f with the text "a b", the enum C
// and the number 7 in the form of their guides.
var xmlFamilies = map[string]string{
	"qwen-3-coder":  "<tool_call>\n<function=f>\n<parameter=q>\na b\n</parameter>\n<parameter=u>\nC\n</parameter>\n<parameter=n>\n7\n</parameter>\n</function>\n</tool_call>",
	"qwen-3.5":      "<tool_call>\n<function=f>\n<parameter=q>\na b\n</parameter>\n<parameter=u>\nC\n</parameter>\n<parameter=n>\n7\n</parameter>\n</function>\n</tool_call>",
	"glm-4.6":       "<tool_call>f\n<arg_key>q</arg_key>\n<arg_value>a b</arg_value>\n<arg_key>u</arg_key>\n<arg_value>C</arg_value>\n<arg_key>n</arg_key>\n<arg_value>7</arg_value>\n</tool_call>",
	"glm-4.7":       "<tool_call>f<arg_key>q</arg_key><arg_value>a b</arg_value><arg_key>u</arg_key><arg_value>C</arg_value><arg_key>n</arg_key><arg_value>7</arg_value></tool_call>",
	"deepseek-v3.2": "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"q\" string=\"true\">a b</｜DSML｜parameter>\n<｜DSML｜parameter name=\"u\" string=\"true\">C</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">7</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
	"minimax-m2":    "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"q\">a b</parameter>\n<parameter name=\"u\">C</parameter>\n<parameter name=\"n\">7</parameter>\n</invoke>\n</minimax:tool_call>",
	"minicpm-5":     "<function name=\"f\"><param name=\"q\">a b</param><param name=\"u\">C</param><param name=\"n\">7</param></function>",
	"seed-oss":      "<seed:tool_call>\n<function=f>\n<parameter=q>a b</parameter>\n<parameter=u>C</parameter>\n<parameter=n>7</parameter>\n</function>\n</seed:tool_call>",
	"hy-3":          "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>q</arg_key>\n<arg_value>a b</arg_value>\n<arg_key>u</arg_key>\n<arg_value>C</arg_value>\n<arg_key>n</arg_key>\n<arg_value>7</arg_value>\n</tool_call>\n</tool_calls>",
	"gemma-4":       "<|tool_call>call:f{q:<|\"|>a b<|\"|>,u:<|\"|>C<|\"|>,n:7}<tool_call|>",
	"solar-open-2":  "<|tool_call:start|>f\n<|tool_arg:start|>q<|tool_arg:value|>a b<|tool_arg:end|>\n<|tool_arg:start|>u<|tool_arg:value|>C<|tool_arg:end|>\n<|tool_arg:start|>n<|tool_arg:value|>7<|tool_arg:end|>\n<|tool_call:end|>",
}

func TestGuidedCallsHaveTheFormOfTheirFamily(t *testing.T) {
	const schema = `{"type": "object", "properties": {"q": {"type": "string", "description": "words"}, "u": {"type": "string", "enum": ["C", "F"]}, "n": {"type": "integer", "minimum": 1}}, "required": ["q"]}`
	for name, call := range xmlFamilies {
		m := (&family{Name: name}).model(t, nil)
		req := &chatv1.ChatRequest{
			Messages: []*chatv1.Message{{Role: "user", Content: "x"}}, Tools: []*chatv1.Tool{{Name: "f", Parameters: schema}},
			ToolChoice: &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED},
		}
		p, err := m.prepareMessages(t.Context(), req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		forms := p.sampling.GetGuide().GetForms()
		if len(forms) != 1 || len(forms[0].GetParts()) != 3 {
			t.Fatalf("%s: %v", name, forms)
		}
		text := strings.Builder{}
		text.WriteString(strings.TrimLeft(forms[0].GetBefore(), "\n"))
		for i, part := range forms[0].GetParts() {
			if part.GetOptional() != (i > 0) || (part.GetSchema() == `{"type": "integer", "minimum": 1}`) != (i == 2) || (len(part.GetTexts()) == 2) != (i == 1) {
				t.Errorf("%s: part %v", name, part)
			}
			text.WriteString(part.GetBefore() + []string{"a b", "C", "7"}[i] + part.GetAfter())
		}
		text.WriteString(forms[0].GetAfter())
		if text.String() != call {
			t.Errorf("%s:\n got %q\nwant %q", name, text.String(), call)
		}
		if p.opened {
			call = "Hm.</think>" + call
		}
		if got := readPieces(p, m.Tokenizer.Encode(call, false)); got.Calls != `f{"n":7,"q":"a b","u":"C"}` {
			t.Errorf("%s: read as %v", name, got)
		}
	}
}

// What a layout cannot enforce is guided as JSON between the tags of the family.
func TestLayoutsRefuseWhatTheyCannotEnforce(t *testing.T) {
	l, ok := layoutOf(strings.NewReplacer("f>", "get_weather>", "=q", "=city", "a b", "Paris", "=u", "=days", "\nC\n", "\n2\n", "=n", "=deep", "\n7\n", "\nTrue\n").Replace(xmlFamilies["qwen-3-coder"]))
	if !ok || !l.isRead(toolcall.Qwen) || l.isRead(toolcall.Llama) {
		t.Fatalf("%v, %+v", ok, l)
	}
	object := func(property string) string {
		return `{"type": "object", "properties": {"a": ` + property + `}, "additionalProperties": false}`
	}
	for schema, want := range map[string]*llmv1.GuidePart{
		object(`{"type": "string"}`):                                             {Before: ">\n"},
		object(`{"type": ["string", "null"], "default": "x"}`):                   {Before: ">\n"},
		object(`{"enum": ["C", "F"]}`):                                           {Before: ">\n", Texts: []string{"C", "F"}},
		object(`{"type": "array", "items": {}}`):                                 {Before: ">\n", Schema: `{"type": "array", "items": {}}`},
		object(`{"type": "string", "pattern": "a"}`):                             nil,
		object(`{"type": "string", "enum": ["</parameter>"]}`):                   {Before: ">\n", Texts: []string{"</parameter>"}},
		object(`{"type": "string", "enum": ["a\n</parameter>"]}`):                nil,
		object(`{"type": ["string", "null"], "enum": ["a", null]}`):              nil,
		object(`{"enum": ["1", "2"]}`):                                           nil, // are they numbers?
		object(`{"enum": [1, 2]}`):                                               nil,
		object(`{}`):                                                             nil,
		object(`{"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}}`): nil,
		object(`true`): nil,
		`{"type": "object", "properties": {"a>": {"type": "string"}}}`:                    nil,
		`{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}`:  nil,
		`{"type": "object", "properties": {"a": {"type": "string"}}, "minProperties": 1}`: nil,
		`{"type": "object", "properties": []}`:                                            nil,
		`true`:                                                                            nil,
	} {
		form, ok := l.form("f", schema)
		if ok != (want != nil) {
			t.Errorf("%s: %v", schema, form)
			continue
		}
		if want != nil {
			want.Before, want.After, want.Optional = "\n<parameter=a"+want.GetBefore(), "\n</parameter>", true
			if len(form.GetParts()) != 1 || !proto.Equal(form.GetParts()[0], want) {
				t.Errorf("%s: %v, want %v", schema, form.GetParts(), want)
			}
		}
	}
	commas, ok := layoutOf("<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:2,deep:true}<tool_call|><|tool_response>")
	if !ok || !commas.isRead(toolcall.Gemma) || commas.end != "}<tool_call|>" {
		t.Fatalf("%v, %+v", ok, commas)
	}
	properties := `{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}`
	if form, ok := commas.form("f", properties+`}`); ok {
		t.Errorf("a comma precedes the first of optional parameters: %v", form)
	}
	form, ok := commas.form("f", properties+`, "required": ["b"]}`)
	if parts := form.GetParts(); !ok || len(parts) != 2 || parts[0].GetBefore() != "b:<|\"|>" || parts[1].GetBefore() != ",a:" || !parts[1].GetOptional() {
		t.Errorf("%v", form)
	}
	if form, ok := l.form("f", `{"type": "object"}`); !ok || len(form.GetParts()) != 0 {
		t.Errorf("no parameters: %v", form)
	}
	for _, call := range []string{"", `{"name": "get_weather", "arguments": {"city": "Paris", "days": 2, "deep": true}}`, `[get_weather(city="Paris", days=2, deep=True)]`, "<f>get_weather<city>Paris</city><days>2</days><deep>true</deep></f>"} {
		if l, ok := layoutOf(call); ok {
			t.Errorf("%q: %+v", call, l)
		}
	}
}

// Whatever form a family has, its parser reads the calls that its guides force.
func TestGuidedCallsAreRead(t *testing.T) {
	var all []*family
	readFamilyFile(t, "families.json", &all)
	read := 0
	for _, f := range all {
		m := f.model(t, nil)
		if m.Markup.Calls == nil {
			continue
		}
		// The pattern has no form in XML.
		req := &chatv1.ChatRequest{
			Messages:   []*chatv1.Message{{Role: "user", Content: "x"}},
			Tools:      []*chatv1.Tool{{Name: "f", Parameters: `{"type": "object", "properties": {"q": {"type": "string", "pattern": "^a"}}, "required": ["q"]}`}},
			ToolChoice: &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED},
		}
		p, err := m.prepareMessages(t.Context(), req)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		form := p.sampling.GetGuide().GetForms()[0]
		if p.opened {
			form.Before = "Hm." + p.form.Close + form.GetBefore()
		}
		read++
		if got := readPieces(p, m.Tokenizer.Encode(form.GetBefore()+`{"q": "a b"}`+form.GetAfter(), false)); got.Calls != `f{"q":"a b"}` || got.Text != "" {
			t.Errorf("%s: %q … %q is read as %v", f.Name, form.GetBefore(), form.GetAfter(), got)
		}
	}
	if read < 50 {
		t.Error("few families have calls:", read)
	}
}
